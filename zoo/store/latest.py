"""Writing the summary of a model's latest release, which `menagerie.store.latest` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.store.latest import find_latest, read_summary
from menagerie.store.layout import latest_key
from menagerie.typed_json import document

if TYPE_CHECKING:
    from menagerie.store.latest import Read
    from zoo.store.base import ObjectStore

__all__ = ["write_latest"]


def write_latest(objects: ObjectStore, model: str, target: str, read: Read) -> None:
    """Brings the stored summary up to date; it is written only when it changes."""
    summary = find_latest(objects, model, target, read)
    if summary is not None and summary != read_summary(objects, model, target):
        objects.put_small(latest_key(model, target), document(summary))
