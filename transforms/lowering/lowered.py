"""What lowering makes of a program, whatever the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from zoo.records import LoweringRecord

__all__ = ["LoweredProgram", "MetalParts"]


@dataclass(frozen=True)
class MetalParts:
    """What a program for Metal has besides its library.

    `shaders` is None for a program without generated kernels; `emulation` is the library for the
    emulated device, None on hosts that cannot run one; `source_sha256` is of the source that both
    libraries come from.
    """

    shaders: Path | None
    emulation: Path | None
    source_sha256: str


@dataclass(frozen=True)
class LoweredProgram:
    """A compiled program: its library, and the tensors it expects by constant name."""

    library: Path
    constants: dict[str, torch.Tensor]
    record: LoweringRecord
    metal: MetalParts | None = None
