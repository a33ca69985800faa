"""Which manifest a run means: Menagerie's own models, a folder, or what `zoo submit` put away.

A submission is named by digest, `sha256:` and 64 hexadecimal digits, and comes from the run's
store: no worker needs a folder that others see.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.paths import home
from zoo.manifest import is_pattern
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from flows.request.parameters import ConversionOptions
    from zoo.store import Store

__all__ = [
    "fetched",
    "manifest_folder",
    "submission_digest",
    "submission_meant",
    "submission_name",
]

_NAME = re.compile(r"sha256:([0-9a-f]{64})")


def submission_name(digest: str) -> str:
    """What a run says to mean a submission."""
    return f"sha256:{digest}"


def submission_digest(manifest: str) -> str | None:
    """The digest in the name of a submission; None for a folder."""
    found = _NAME.fullmatch(manifest)
    return None if found is None else found[1]


def manifest_folder(options: ConversionOptions) -> Path | None:
    """The folder of the manifest that is meant, fetched where it is a submission; None: our own.

    Raises:
        NotInStore: there is no such submission.
        HashMismatch: the store has other bytes than those submitted.
    """
    digest = submission_digest(options.manifest)
    if digest is None:
        return Path(options.manifest) if options.manifest else None
    return fetched(open_store(options.store_url), digest)


def submission_meant(store: Store, models: Sequence[str], own: Collection[str]) -> str | None:
    """The digest of the newest submission that has these models; None where none is meant.

    Args:
        store: where submissions are.
        models: names, or patterns, which choose among Menagerie's own alone.
        own: the names of Menagerie's own models: where they have all, those are meant.
    """
    if not models or set(models) <= set(own) or any(map(is_pattern, models)):
        return None
    return store.submission_of(models)


def fetched(store: Store, digest: str) -> Path:
    """The folder of a submission, fetched where it is not here yet.

    Raises:
        NotInStore: there is no such submission.
        HashMismatch: the store has other bytes than those submitted.
    """
    folder = home() / "submissions" / digest
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = store.fetch_submission(digest, folder)
    os.utime(found)  # what is in use is not swept
    return found
