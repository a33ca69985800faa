"""Finding the bundle that a command's argument means: a folder, a zip file, or a model's name."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.transfer import transfer
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bundle_at", "model_name"]

_MODEL = re.compile(r"[a-z][a-z0-9_]*")


@contextmanager
def bundle_at(where: str, target: str, store: str) -> Iterator[Path]:
    """The folder of the bundle; a zip or a release is unpacked to a temporary one.

    Args:
        where: an existing folder or zip file, else the name of a model in the store.
        target: for a model's name, which of its releases.
        store: for a model's name, where to look.

    Raises:
        UsageError: if it can be neither a path nor a name.
        ArtifactError: if the zip breaks the format.
        NotInStore: if it is neither a path nor a released model.
    """
    path = Path(where)
    if path.is_dir():
        yield path
        return
    from flows.work import new_work_folder

    work = new_work_folder("bundle")
    try:
        yield _fetched(where, target, store, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetched(where: str, target: str, store: str, work: Path) -> Path:
    place = work / "bundle"
    if Path(where).is_file():
        from menagerie.format.archive import unpack

        work.mkdir()
        return unpack(Path(where), place)
    from zoo.store import open_store

    opened = open_store(store)
    release = opened.find(model_name(where), target)
    work.mkdir()
    with transfer(f"{where} for {target}") as progress:
        return opened.pull(release, place, progress)


def model_name(text: str) -> str:
    """`text`, if it can be a model's name.

    Raises:
        UsageError: if not: it was meant as a path, and there is nothing there.
    """
    if not _MODEL.fullmatch(text):
        raise UsageError(text, "is no folder, no file and no model's name", "Check the path")
    return text
