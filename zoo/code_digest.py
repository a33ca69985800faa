"""The digest of the code that converts: part of every build key."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from zoo.errors import UsageError

__all__ = ["code_digest"]


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


def _package_folder(name: str) -> Path:
    # find_spec does not import a top-level package, so transforms does not bring torch.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise UsageError(name, "this package is not installed", "Run `make setup`")
    return Path(spec.origin).parent
