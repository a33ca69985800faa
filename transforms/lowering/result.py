"""What lowering makes of a program, and for which machines."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import Requirements
from menagerie.host import INSTRUCTIONS, RUNTIME_ABI
from zoo.errors import LoweringError

if TYPE_CHECKING:
    import torch

    from zoo.records import LoweringRecord


@dataclass(frozen=True)
class LoweredFile:
    """A file beside a program's library; what else is said of it is in the manifest too."""

    path: Path  # in the bundle's folder
    # Of the source that it and the library were both compiled from, if it was
    source_sha256: str | None = None
    # Of a machine that loads it, where that is not the library's
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


def host_requirements() -> Requirements:
    """Return what a machine needs to run libraries made here; LoweringError if unknown."""
    machine = platform.machine()
    if machine not in INSTRUCTIONS:
        fact = f"there is no baseline for {machine}"
        raise LoweringError("cpu", fact, "x86_64 and arm64 are known")
    return Requirements(
        system=platform.system().lower(),
        machine=machine,
        instructions=INSTRUCTIONS[machine],
        runtime_abi=RUNTIME_ABI,
    )
