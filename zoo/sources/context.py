"""The context of a source, and the files beside the manifest that it may read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from menagerie.typed_json import load
from zoo.errors import HashMismatch, SourceError, SourceRefused

_INDEX = ".index.json"
_MOST_INDEX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Context:
    """The model's name, its manifest file's folder, permissions, and advice on failed code."""

    model: str
    folder: Path
    allow_factories: bool = False
    advice: str = "Fix the builder"


def first_line(error: Exception) -> str:
    """Return an error's first line, for a message of one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextmanager
def reading(
    what: str, model: str, step: str = "Fix the source's folder", kind: str = ""
) -> Iterator[None]:
    """Convert any error of a file's reader into a SourceError."""
    try:
        yield
    except (SourceError, HashMismatch):
        raise
    except Exception as error:  # untrusted bytes make readers raise anything
        fact = f"{what} cannot be read{kind} ({first_line(error)})"
        raise SourceError(model, fact, step) from error


def resolve_inside(path: str, context: Context, *, outside: bool = False) -> Path:
    """Return the file or folder at an entry's `path`, beside the manifest or `outside`.

    A submitted manifest must not learn about a worker's files, so `outside` is only for manifests
    of this machine. Raise SourceRefused if the path leads out of the manifest's folder (by `..`, by
    a link or because it is absolute) and that is not permitted, SourceError if nothing exists
    there.
    """
    folder = context.folder.resolve()
    try:
        resolved = (folder / Path(path).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such user, a cycle of links
        fact = f"{path!r} is not a path ({first_line(error)})"
        raise SourceError(context.model, fact, "Correct the entry") from error
    if not resolved.is_relative_to(folder):
        from zoo.store.submissions import is_submitted  # `convert()` needs no store

        submitted = is_submitted(folder)
        if submitted or not outside:
            fact = f"{path} leads out of the manifest's folder"
            fact += ", which was submitted" if submitted else ""
            step = "Put the file beside the manifest"
            step += "" if submitted else "; an entry's checkpoint may say `outside: true`"
            raise SourceRefused(context.model, fact, step)
    if not resolved.exists():
        fact = f"{path} does not exist{'' if outside else ' beside the manifest file'}"
        raise SourceError(context.model, fact, "Fix the entry")
    return resolved


def weights_folder(path: str, context: Context) -> Path:
    """Return the folder at an entry's relative `path`, if nothing in it leads out of it.

    Links may lead to files in the manifest's folder. An index may only name shards beside it, so a
    digest of the folder's files covers everything that is read. Raise SourceRefused if the folder,
    a link in it, or an index leads out, SourceError if the folder is missing or an index cannot be
    read.
    """
    folder = resolve_inside(path, context)
    inside = context.folder.resolve()
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.is_symlink() and not file.resolve().is_relative_to(inside):
            fact = f"{path}/{file.name} is a link out of the manifest's folder"
            raise SourceRefused(context.model, fact, "Put the file there")
        if file.name.endswith(_INDEX) and file.is_file():
            _check_index(file, f"{path}/{file.name}", context)
    return folder


def _check_index(file: Path, place: str, context: Context) -> None:
    if file.stat().st_size > _MOST_INDEX_BYTES:
        fact = f"{place} is too large for an index"
        raise SourceRefused(context.model, fact, "Name a smaller index")
    with reading(place, context.model, "Fix the index"):
        index = load(file.read_bytes())
        shards = index.get("weight_map") if isinstance(index, dict) else None
    for shard in sorted(map(str, shards.values())) if isinstance(shards, dict) else ():
        if "/" in shard or "\\" in shard or shard in {"", ".", ".."}:
            fact = f"{place} names {shard!r}, not a file beside it"
            raise SourceRefused(context.model, fact, "Fix the index")
