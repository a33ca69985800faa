"""What a source may know of its surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import SourceError, SourceRefused

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Context", "resolve_inside"]


@dataclass(frozen=True)
class Context:
    """The model's name for messages, its manifest file's folder, and what was permitted."""

    model: str
    folder: Path
    allow_factories: bool = False


def resolve_inside(path: str, context: Context) -> Path:
    """The file or folder that an entry's relative `path` means.

    Raises:
        SourceRefused: if it leads out of the manifest's folder, by `..`, by a link or by being
            absolute.
        SourceError: if nothing is there.
    """
    folder = context.folder.resolve()
    resolved = (folder / path).resolve()
    if not resolved.is_relative_to(folder):
        raise SourceRefused(
            context.model,
            f"{path} leads out of the manifest's folder",
            "Put the weights beside the manifest file",
        )
    if not resolved.exists():
        raise SourceError(
            context.model, f"{path} does not exist beside the manifest file", "Mend the entry"
        )
    return resolved
