"""Compare the kernels that a program calls with those that the target's runtime offers."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.export import ExportedProgram

from menagerie.shims import load, supported_symbols
from zoo.errors import LoweringError, UnsupportedKernels

# Every shared library leaves these undefined on purpose, or the C and C++ libraries resolve them.
_SHIM_PREFIXES = ("aoti_torch_", "Sleef_", "menagerie_")
_FOREIGN_PREFIXES = ("_ZN2at", "_ZN3c10", "_ZN5torch", "_ZNK2at", "_ZNK3c10", "_ZNK5torch")

# Workarounds for a model's owner where no target has the kernel.
_INSTEAD = {
    "transformers.grouped_mm_fallback.default": "Let transformers multiply experts in plain "
    'batches: model.set_experts_implementation("batched_mm")',
    "max_pool2d_with_indices_backward": "Leave gradients out: inference has none",
    "histogram": "Count with torch.histc, or with torch.bucketize and torch.bincount",
}


def check_kernels(place: str, uses: Mapping[str, tuple[str, ...]], target: str) -> None:
    """Raise UnsupportedKernels with all fallback kernels that `target` lacks, and their users."""
    offered = supported_symbols(target)
    missing = {kernel: sites for kernel, sites in uses.items() if kernel not in offered}
    if missing:
        known = [step for kernel, step in _INSTEAD.items() if kernel in " ".join(missing)]
        raise UnsupportedKernels(place, missing, known[0] if known else "")


def check_library(place: str, library: Path, target: str) -> tuple[str, ...]:
    """Return the shim symbols that a finished library imports, sorted.

    Raise UnsupportedKernels for a symbol that the runtime lacks, and LoweringError for libtorch's.
    """
    if (nm := shutil.which("nm")) is None:
        raise LoweringError("coverage", "there is no `nm` on the PATH", "Install binutils")
    # Mach-O has one symbol table, and an underscore in front of C names.
    dynamic, prefix = ([], "_") if platform.system() == "Darwin" else (["-D"], "")
    listing = subprocess.run(
        [nm, *dynamic, "--undefined-only", "--format=posix", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    undefined = [line.split()[0].removeprefix(prefix) for line in listing.splitlines()]
    foreign = [s for s in undefined if s.startswith(_FOREIGN_PREFIXES)]
    if foreign:
        raise LoweringError(place, f"the library needs libtorch: {foreign[0]}")
    symbols = tuple(sorted(s for s in undefined if s.startswith(_SHIM_PREFIXES)))
    check_kernels(place, dict.fromkeys(symbols, ()), target)
    return symbols


def own_shims(program: ExportedProgram, device: str) -> dict[torch._ops.OpOverload, list[str]]:
    """Return our own operators in use with their C declarations on `cpu` or `mps`."""
    declarations = {s.name: s.declaration for s in load() if s.parameters is not None}
    found, spaces = {}, {"menagerie", "torchao"}
    for node in program.graph.nodes:
        operator = node.target
        if isinstance(operator, torch._ops.OpOverload) and operator.namespace in spaces:
            name = f"aoti_torch_{device}_{operator._schema.name.partition('::')[2]}"
            if name in declarations:
                found[operator] = [declarations[name]]
    return found
