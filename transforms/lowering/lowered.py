"""What lowering makes of a program, whatever the target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from menagerie.format.bundle_manifest import Requirements
    from zoo.records import LoweringRecord

__all__ = ["LoweredFile", "LoweredProgram"]


@dataclass(frozen=True)
class LoweredFile:
    """A file beside a program's library; what else is said of it stands in the manifest too.

    Attributes:
        path: in the bundle's folder.
        source_sha256: of the source that it and the library were both compiled from, if it was.
        requires: of a machine that loads it, where that is not the library's.
    """

    path: Path
    source_sha256: str | None = None
    requires: Requirements | None = None


@dataclass(frozen=True)
class LoweredProgram:
    """A compiled program: its library, and the tensors it expects by constant name.

    `files` are the others that the target's runtime asks for, by their role in the manifest.
    """

    library: Path
    constants: dict[str, torch.Tensor]
    record: LoweringRecord
    files: Mapping[str, LoweredFile] = field(default_factory=dict)
