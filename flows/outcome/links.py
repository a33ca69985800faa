"""Links from a run to what it made: the report page and the artifact's files."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from menagerie.figures import size
from menagerie.format.paths import MANIFEST
from zoo.report import plain_text
from zoo.store import open_store

if TYPE_CHECKING:
    from zoo.store import Release

__all__ = ["LINK_DAYS", "Links", "release_links"]

LINK_DAYS = 7  # S3 gives no presigned address a longer life
_REPORT = "report.html"
_ENDPOINT = "MENAGERIE_S3_ENDPOINT"  # no secret; without it the address means AWS


class Links:
    """Addresses of a release's files, good for a week, or none where the store is a folder.

    Args:
        store: the store's address.
        release: of what.
    """

    def __init__(self, store: str, release: Release) -> None:
        self._release = release
        self._store = store
        seconds = LINK_DAYS * 24 * 3600
        self._until = datetime.now(UTC) + timedelta(seconds=seconds)
        opened = open_store(store)
        self._addresses = {
            name: address
            for name in (MANIFEST, *release.manifest.listed)
            if (address := opened.link(release, name, seconds)) is not None
        }

    @property
    def report(self) -> str | None:
        """Of the HTML report."""
        return self._addresses.get(_REPORT)

    def markdown(self) -> str:
        """How to get the artifact, for the end of a page."""
        release = self._release
        endpoint = os.environ.get(_ENDPOINT)
        where = [f"{_ENDPOINT}={endpoint}"] if endpoint and "://" in self._store else []
        pull = ["zoo", "pull", release.model, "--target", release.target, "--store", self._store]
        # An indented line shows all as it is; a line break is the one thing that could end it.
        lines = ["## Get it", "", f"    {' '.join(shlex.join([*where, *pull]).split())}", ""]
        if self._addresses:
            until = f"{self._until:%Y-%m-%d %H:%M} UTC"
            lines += [f"Or file by file, until {until}; whoever has an address can read it:", ""]
            for name, address in sorted(self._addresses.items()):
                entry = release.manifest.listed.get(name)
                taken = size(len(release.document) if entry is None else entry.bytes)
                lines.append(f"- [{plain_text(name)}]({address}) ({taken})")
        return "\n".join(lines) + "\n"


def release_links(store: str, model: str, target: str, build_key: str) -> Links:
    """Links to a release.

    Raises:
        StoreError: it cannot be found.
    """
    return Links(store, open_store(store).find_any(model, target, build_key))
