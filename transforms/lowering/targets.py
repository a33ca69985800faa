"""Which lowering belongs to which target, and what its artifacts require of a machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from menagerie.format.bundle_manifest import Requirements
from menagerie.shim_list import RUNTIME_ABI
from transforms.lowering import cpu, metal
from transforms.lowering.mach_toolchain import DEPLOYMENT_TARGET
from zoo.spec import Target

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

    from transforms.lowering.lowered import LoweredProgram

__all__ = ["host_requirements", "lower", "requirements"]


def lower(
    program: ExportedProgram, bundle: Path, target: Target, *, name: str = "main"
) -> LoweredProgram:
    """Compile one program for a target; its files go to `programs/<name>/` of the bundle.

    Raises:
        UnsupportedKernels: listing every fallback kernel that the target's runtime lacks.
        LoweringError: if code generation or a compiler fails.
    """
    if target is Target.METAL:
        return metal.lower(program, bundle, name=name)
    folder = bundle / "programs" / name
    folder.mkdir(parents=True, exist_ok=True)
    return cpu.lower(program, folder / "model.so", name=name)


def requirements(target: Target) -> Requirements:
    """What a machine must be to run an artifact that was lowered here for `target`."""
    if target is Target.METAL:
        return Requirements(
            system="darwin",
            machine="arm64",
            deployment_target=DEPLOYMENT_TARGET,
            runtime_abi=RUNTIME_ABI,
        )
    return host_requirements()


def host_requirements() -> Requirements:
    """What a machine must be to run libraries that are compiled for machines like this one."""
    return Requirements(
        system=platform.system().lower(),
        machine=platform.machine(),
        instructions=cpu.instructions(),
        runtime_abi=RUNTIME_ABI,
    )
