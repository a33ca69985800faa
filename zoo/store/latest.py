"""Which release of a model is the latest: a summary that a late writer cannot falsify.

`latest/<model>/<target>.json` names the best of the releases that it has *considered*, and lists
those. A reader asks the store which releases there are and looks at the ones the summary has not
considered: so a process that was killed before it wrote the summary, or two that wrote it in the
wrong order, make the next reader's work longer by a document, and never its answer wrong. No lock
and no conditional write is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from menagerie.format.bundle_manifest import BundleManifest, Moment, ReleaseState, moment
from zoo.errors import NotInStore, TooLarge
from zoo.spec import Sha256
from zoo.store.layout import MAX_SUMMARY_BYTES, latest_key, parse_release_key, releases_prefix

if TYPE_CHECKING:
    from datetime import datetime

    from zoo.store.base import ObjectStore

__all__ = ["Latest", "find_latest", "write_latest"]

FORMAT_NAME: Final = "menagerie-latest"

Read = Callable[[str, str, str], BundleManifest | None]  # model, target, build key


class Latest(BaseModel):
    """The summary: the best release, and all that were compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["menagerie-latest"] = FORMAT_NAME
    version: Literal[1] = 1
    build_key: Sha256
    state: ReleaseState
    created: Moment
    considered: tuple[str, ...]  # names of the documents, sorted


def find_latest(objects: ObjectStore, model: str, target: str, read: Read) -> Latest | None:
    """The summary as it ought to be now; None when there is no readable release.

    A validated release goes before an emulated one, then the newer before the older.

    Args:
        objects: the store.
        model: name in the manifest.
        target: name of the target.
        read: gives the manifest of a release, or None when it cannot be read.
    """
    listed = objects.list_keys(releases_prefix(model, target))
    keys = {PurePosixPath(key).stem for key in listed if parse_release_key(key) is not None}
    summary = read_summary(objects, model, target)
    if summary is not None and keys.issuperset(summary.considered):
        best, seen = [summary], set(summary.considered)
    else:  # no summary yet, or a release that it speaks of was removed
        best, seen = [], set()
    for key in keys - seen:
        if (manifest := read(model, target, key.removesuffix(".confirmed"))) is not None:
            best.append(_entry(manifest))
            seen.add(key)
    if not best:
        return None
    return max(best, key=_rank).model_copy(update={"considered": tuple(sorted(seen))})


def write_latest(objects: ObjectStore, model: str, target: str, read: Read) -> None:
    """Brings the stored summary up to date; it is written only when it changes."""
    summary = find_latest(objects, model, target, read)
    if summary is not None and summary != read_summary(objects, model, target):
        text = json.dumps(summary.model_dump(mode="json"), sort_keys=True, indent=1)
        objects.put_small(latest_key(model, target), (text + "\n").encode())


def read_summary(objects: ObjectStore, model: str, target: str) -> Latest | None:
    """The stored summary; None when there is none that can be read, for it can be made again."""
    try:
        content = objects.read_small(latest_key(model, target), MAX_SUMMARY_BYTES)
        return Latest.model_validate_json(content)
    except (NotInStore, TooLarge, ValidationError):
        return None


def _entry(manifest: BundleManifest) -> Latest:
    return Latest(
        build_key=manifest.build_key,
        state=manifest.state,
        created=manifest.created,
        considered=(),
    )


def _rank(entry: Latest) -> tuple[bool, datetime, str]:
    validated = entry.state is ReleaseState.VALIDATED
    return validated, moment(entry.created), entry.build_key
