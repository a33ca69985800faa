"""Which versions make an artifact what it is, found out without importing any of them."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from typing import TYPE_CHECKING

from menagerie.compilers import find_host_compiler
from menagerie.host import RUNTIME_ABI

if TYPE_CHECKING:
    from transforms.targets import Target

__all__ = ["versions"]

_PACKAGES = ("torch", "torchvision", "transformers", "numpy", "safetensors")


@functools.cache
def versions(target: Target) -> dict[str, str]:
    """Packages, compiler, platform and runtime ABI by name; `absent` for what is not installed."""
    found = {name: _version(name) for name in _PACKAGES}
    compiler = find_host_compiler()
    found["compiler"] = compiler.version if compiler is not None else "absent"
    found["host"] = f"{platform.system().lower()}-{platform.machine()}"
    found["platform"] = target.platform
    found |= target.versions()
    found["runtime abi"] = str(RUNTIME_ABI)  # an artifact of another number does not load
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
