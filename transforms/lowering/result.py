"""The results of lowering a program, and the machines that they run on."""

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
    """A file beside a program's library; the manifest has its remaining properties."""

    path: Path  # in the bundle's folder
    # Digest of the source that both it and the library were compiled from, if any
    source_sha256: str | None = None
    # Requirements of machines that load it, if they differ from the library's
    requires: Requirements | None = None


@dataclass(frozen=True)
class LoweredProgram:
    """A compiled program: its library, and the tensors it expects by constant name.

    `files` are the other files that the target's runtime needs, by their role in the manifest.
    """

    library: Path
    constants: dict[str, torch.Tensor]
    record: LoweringRecord
    files: Mapping[str, LoweredFile] = field(default_factory=dict)


def host_requirements() -> Requirements:
    """Return the requirements of libraries made here; LoweringError for an unknown machine."""
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
