"""Links from a run to what it made: the report page and the artifact's files."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from menagerie.figures import size
from menagerie.format.bundle_manifest import MANIFEST, SIGNATURE
from zoo.errors import StoreError
from zoo.report import plain_text
from zoo.store import open_store
from zoo.store.base import LINK_SECONDS

if TYPE_CHECKING:
    from zoo.store import Release

_REPORT = "report.html"
_ENDPOINT = "AWS_ENDPOINT_URL_S3"  # no secret; without it the address means AWS
_AUTHORITY = "AWS_CA_BUNDLE"
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class Links:
    """Addresses of a release's files, good for a week, or none where the store is a folder.

    Of a candidate, which nothing takes before it is promoted, there is the report's alone.

    Args:
        store: the store's address.
        release: of what.
    """

    def __init__(self, store: str, release: Release) -> None:
        self._release = release
        self._store = store
        self._until = datetime.now(UTC) + timedelta(seconds=LINK_SECONDS)
        opened = open_store(store)
        addresses = {
            name: address
            for name in (MANIFEST, *release.manifest.listed)
            if (address := opened.link(release, name, LINK_SECONDS)) is not None
        }
        self.report = addresses.get(_REPORT)
        self._archive: str | None = None
        self._waits = False
        if addresses:
            with suppress(StoreError):  # then the page does without
                self._waits = opened.candidate(*release.names) == release
                self._archive = opened.link_archive(release, LINK_SECONDS)
                if signature := opened.link(release, SIGNATURE, LINK_SECONDS):
                    addresses[SIGNATURE] = signature
        self._addresses = {} if self._waits else addresses

    def markdown(self) -> str:
        """How to get the artifact, for the end of a page."""
        release = self._release
        endpoint = os.environ.get(_ENDPOINT)
        where = [f"{_ENDPOINT}={endpoint}"] if endpoint and self._in_bucket else []
        pull = ["zoo", "pull", release.model, "--target", release.target, "--store", self._store]
        # An indented line shows all as it is; a line break is the one thing that could end it.
        lines = ["## Get it", "", f"    {' '.join(shlex.join([*where, *pull]).split())}", ""]
        if self._waits:
            lines += [
                "It waits for its promotion (`zoo release promote`): before, nothing takes it.",
                "",
            ]
        if self._in_bucket:
            lines += [self._needed_keys(), ""]
        until = f"until {self._until:%Y-%m-%d %H:%M} UTC; whoever has an address can read it"
        if self._archive is not None:
            taken = size(release.size)
            lines += [f"Or [as one zip file]({self._archive}) ({taken}), {until}.", ""]
        if self._addresses:
            folders = " Keep the folders in their names." if self._has_folders else ""
            lines += [f"Or file by file into one folder, {until}:{folders}", ""]
            for name, address in sorted(self._addresses.items()):
                lines.append(f"- [{plain_text(name)}]({address}){self._taken(name)}")
        return "\n".join(lines) + "\n"

    def _taken(self, name: str) -> str:
        """How large a file is, in brackets; of a signature, which is small, nothing."""
        if name == SIGNATURE:
            return ""
        entry = self._release.manifest.listed.get(name)
        return f" ({size(len(self._release.document) if entry is None else entry.bytes)})"

    @property
    def _in_bucket(self) -> bool:
        return self._store.startswith("s3://")

    @property
    def _has_folders(self) -> bool:
        return any("/" in name for name in self._addresses)

    def _needed_keys(self) -> str:
        """What the command takes from the environment besides, by name."""
        keys = " and ".join(f"`{name}`" for name in _KEYS)
        authority = f", and `{_AUTHORITY}` the certificate of its authority"
        trusted = authority if os.environ.get(_AUTHORITY) else ""
        return (
            f"{keys} name a key that may read the store{trusted}. On the machine of `zoo up` they "
            "are found by themselves."
        )


def release_links(store: str, model: str, target: str, build_key: str) -> Links:
    """Links to a release.

    Raises:
        StoreError: it cannot be found.
    """
    return Links(store, open_store(store).find_any(model, target, build_key))


def link_page(store: str, page: bytes, name: str) -> str | None:
    """Put a report that no release holds into the store.

    Args:
        store: the store's address.
        page: HTML.
        name: what a browser calls it, without its ending.

    Returns:
        Its address, good for a week; None where the store is a folder, which gets none either.

    Raises:
        StoreError: the store does not take it.
    """
    if not store.startswith("s3://"):
        return None
    opened = open_store(store)
    return opened.link_page(opened.put_page(page), name, LINK_SECONDS)
