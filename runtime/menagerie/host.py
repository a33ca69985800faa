"""This machine: the platforms whose releases it runs, its processor and its cores."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from menagerie.format.bundle_manifest import Requirements, platform_name

# Incremented when earlier libraries no longer run; MENAGERIE_RUNTIME_ABI of menagerie.h.
RUNTIME_ABI = 3
# Instructions that the runtime and its CPU artifacts use, by machine, as in /proc/cpuinfo.
INSTRUCTIONS = {"x86_64": ("avx2", "bmi2", "f16c", "fma"), "arm64": (), "aarch64": ()}
# By target: the platforms whose bundles have a library for machines without the device.
_EMULATED = {"metal": ("metal-macos-arm64",)}


def host_platform(target: str) -> str:
    """Return this machine's platform for a target, e.g. `cpu-linux-x86_64`."""
    here = Requirements(
        system=platform.system().lower(), machine=platform.machine(), runtime_abi=RUNTIME_ABI
    )
    return platform_name(target, here)


def emulates(needs: Requirements) -> bool:
    """Return whether this machine emulates the machine that a bundle requires."""
    return platform.system().lower() != needs.system


def runnable_platforms(target: str) -> tuple[str, ...]:
    """Return a target's platforms that run here, this machine's own before emulated ones."""
    return tuple(dict.fromkeys((host_platform(target), *_EMULATED.get(target, ()))))


def machine() -> str:
    """Describe this machine in a phrase: processor, cores, system."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {cores()} cores, {platform.system()} {platform.machine()}"


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # missing on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1
