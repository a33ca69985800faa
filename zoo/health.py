"""How something is that was looked at: for `zoo doctor` and `zoo status`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Health"]


class Health(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"  # some commands will fail
    FAIL = "fail"  # most will


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, how it is, and what to do about it unless all is well."""

    name: str
    health: Health
    detail: str
    advice: str = ""
