"""Which platforms' releases this machine runs: its own, and those that are emulated on it."""

from __future__ import annotations

import platform

from menagerie.abi import RUNTIME_ABI
from menagerie.format.bundle_manifest import Requirements, platform_name

__all__ = ["INSTRUCTIONS", "emulates", "host_platform", "runnable_platforms"]

# What the runtime and its CPU artifacts are compiled for, by machine, in /proc/cpuinfo's words.
INSTRUCTIONS = {"x86_64": ("avx2", "bmi2", "f16c", "fma"), "arm64": (), "aarch64": ()}

# By target: the platforms whose bundles bring a library for machines without the device.
_EMULATED = {"metal": ("metal-macos-arm64",)}


def host_platform(target: str) -> str:
    """The platform that this machine is to a target, e.g. `cpu-linux-x86_64`."""
    here = Requirements(
        system=platform.system().lower(), machine=platform.machine(), runtime_abi=RUNTIME_ABI
    )
    return platform_name(target, here)


def emulates(needs: Requirements) -> bool:
    """Whether this machine is not the kind that a bundle is for, but one that emulates it."""
    return platform.system().lower() != needs.system


def runnable_platforms(target: str) -> tuple[str, ...]:
    """Platforms of a target that this machine can run, its own before those it emulates."""
    return tuple(dict.fromkeys((host_platform(target), *_EMULATED.get(target, ()))))
