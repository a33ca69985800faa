"""Which versions make an artifact what it is, found out without importing any of them."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.abi import RUNTIME_ABI
from menagerie.host_compiler import find_host_compiler
from zoo.errors import UsageError

if TYPE_CHECKING:
    from transforms.targets import Target

__all__ = ["code_digest", "versions"]

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


@functools.cache
def code_digest() -> str:
    """sha256 over the code whose change makes another artifact of the same model."""
    transforms, menagerie, zoo = (_package_folder(p) for p in ("transforms", "menagerie", "zoo"))
    files = [
        *((f"transforms/{f.relative_to(transforms)}", f) for f in _sources(transforms)),
        *((f"sources/{f.relative_to(zoo)}", f) for f in (zoo / "sources").rglob("*.py")),
        ("shims.toml", menagerie / "shims.toml"),
    ]
    digest = hashlib.sha256()
    for name, file in sorted(files):
        digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _sources(folder: Path) -> list[Path]:
    found = [f for kind in ("*.py", "*.h", "*.cpp") for f in folder.rglob(kind)]
    return [f for f in found if folder / "bisect" not in f.parents]  # it makes no artifacts


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _package_folder(name: str) -> Path:
    # find_spec does not import a top-level package, so transforms does not bring torch.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UsageError(name, "this package is not installed", "Run `make setup`")
    return Path(spec.origin).parent
