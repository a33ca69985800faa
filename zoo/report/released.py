"""The report of a release, read from its store."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pydantic import ValidationError

from menagerie.store.layout import blob_key
from zoo.errors import NotInStore, TooLarge
from zoo.records import ConversionReport

if TYPE_CHECKING:
    from zoo.store import Release, Store

__all__ = ["report_of"]

_MOST_REPORT_BYTES = 64 * 2**20


def report_of(store: Store, release: Release) -> ConversionReport | None:
    """The report of a release's conversion; None where it holds none that can be read."""
    entry = release.manifest.listed.get("report.json")
    if entry is None:
        return None
    try:
        content = store.objects.read_small(blob_key(entry.sha256), _MOST_REPORT_BYTES)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            return None
        return ConversionReport.model_validate_json(content)
    except (NotInStore, TooLarge, ValidationError):
        return None
