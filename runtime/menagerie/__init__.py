"""Runs models that Menagerie converted: no PyTorch, numpy alone.

::

    import menagerie

    folder = menagerie.pull("resnet18", "https://models.example/zoo", "resnet18")
    with menagerie.open(folder) as session:
        logits = session.run({"x": image})["output"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from menagerie.abi import RUNTIME_ABI
    from menagerie.errors import MenagerieError
    from menagerie.library import library_path, version
    from menagerie.session import Session

__all__ = ["RUNTIME_ABI", "MenagerieError", "Session", "library_path", "version"]

_HOMES = {
    "RUNTIME_ABI": "menagerie.abi",
    "MenagerieError": "menagerie.errors",
    "Session": "menagerie.session",
    "library_path": "menagerie.library",
    "version": "menagerie.library",
}


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used: `import menagerie` costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'menagerie' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
