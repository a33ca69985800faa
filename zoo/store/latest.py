"""Writing the summary of a platform's latest release, which `menagerie.store.latest` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.store.latest import find_latest, read_summary
from menagerie.store.layout import latest_key
from menagerie.typed_json import document

if TYPE_CHECKING:
    from menagerie.store.latest import Read
    from zoo.store.base import ObjectStore

__all__ = ["write_latest"]


def write_latest(objects: ObjectStore, model: str, target: str, platform: str, read: Read) -> None:
    """Brings the stored summary of a platform up to date; it is written only when it changes."""
    summary = find_latest(objects, model, target, platform, read)
    if summary is not None and summary != read_summary(objects, model, platform):
        objects.put_small(latest_key(model, platform), document(summary))
