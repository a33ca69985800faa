"""What a release's weights are kept in; a module of its own, since `zoo --help` names it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Precision"]


class Precision(StrEnum):
    """What a release's weights are kept in; its inputs and outputs stay float32."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
