"""Reader of releases on the Hugging Face Hub: one repository per model, one folder per platform.

Such a folder is the bundle, file by file, so that the Hub shows the files and its own tools
download them. The reader uses https://huggingface.co/docs/hub/api and `resolve` addresses.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import PurePosixPath
from urllib.parse import quote, urlsplit

from menagerie.errors import ArtifactError, NotInStore, UnknownName, UsageError
from menagerie.format.bundle_manifest import MANIFEST, MAX_MANIFEST_BYTES, parse_manifest
from menagerie.host import runnable_platforms
from menagerie.store.base import ObjectReader, Parts
from menagerie.store.http import HttpReader
from menagerie.store.layout import blob_key
from menagerie.store.releases import Release, ReleaseReader
from menagerie.typed_json import Malformed, load

_MOST_LIST_BYTES = 2**24
ENDPOINT = "https://huggingface.co"
# Names as huggingface.co/docs/huggingface_hub defines them: no `--`, no `..`, no leading dot.
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[-.](?![-.]))*"
_ADDRESS = re.compile(rf"hf://({_PART}/{_PART})(?:@([A-Za-z0-9._/-]+))?")


def endpoint(asked: str = "") -> str:
    """Return the Hub's address: `asked`, else `$HF_ENDPOINT`, else the public one.

    Raise UsageError if it is not an https or http address, or has a password, which would be shown.
    """
    address = (asked or os.environ.get("HF_ENDPOINT", "") or ENDPOINT).rstrip("/")
    try:
        parts = urlsplit(address)
        good = parts.scheme in {"https", "http"} and parts.hostname and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        fact = "is not the address of a Hub"
        raise UsageError("HF_ENDPOINT", fact, "Write https://host; a token goes into HF_TOKEN")
    return address


def _authorization() -> str:
    token = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch("[!-~]*", token):
        raise UsageError("HF_TOKEN", "is not a token: it has blanks or other signs", "Set it again")
    return f"Bearer {token}" if token else ""


def repository(address: str) -> tuple[str, str]:
    """Split `hf://ORG/NAME[@REVISION]`, by default at `main`; raise UsageError for other forms."""
    found = _ADDRESS.fullmatch(address)
    if found is None or ".." in (found[2] or ""):
        fact = "is not a repository of the Hub"
        raise UsageError(address, fact, "Write hf://ORG/NAME or hf://ORG/NAME@REVISION")
    return found[1], found[2] or "main"


class HubReleases(ReleaseReader):
    """The releases of a model in a repository, one per platform, `hf://ORG/NAME[@REVISION]`.

    They are copies: only the publisher's own store shows whether one was retracted since.
    `$HF_ENDPOINT` names another server, and `$HF_TOKEN` grants access to private repositories.
    """

    def __init__(self, address: str, *, allow_unsigned: bool | None = None) -> None:
        self._files = _Files(address)
        super().__init__(self._files, allow_unsigned=allow_unsigned)

    def find(
        self, model: str, target: str, build_key: str | None = None, *, platform: str | None = None
    ) -> Release:
        """See `ReleaseReader.find`; `model` may be empty, because a repository holds one model."""
        wanted = (platform,) if platform else runnable_platforms(target)
        for each in wanted:
            document = self._files.read_if_there(f"{each}/{MANIFEST}", MAX_MANIFEST_BYTES)
            if document is None:
                continue
            place = f"{self.url}/{each}/{MANIFEST}"
            manifest = parse_manifest(document, place)
            if manifest.platform != each:
                raise ArtifactError(place, f"is for {manifest.platform}", "Tell its owner")
            asked = (model or manifest.model, (build_key or "")[:64])
            if manifest.model != asked[0] or not manifest.build_key.startswith(asked[1]):
                fact = f"holds {manifest.model}, build {manifest.build_key[:12]}"
                raise UnknownName(self.url, fact, "Name a revision that holds it: hf://ORG/NAME@…")
            self._files.show(each, {e.sha256: name for name, e in manifest.listed.items()})
            return Release(manifest, document)
        if there := self._files.platforms():
            fact = f"no release for {wanted[0]}, but for {', '.join(there)}"
            raise NotInStore(self.url, fact, "Name a platform by --platform")
        fact = "no release: none of its folders has a manifest.json"
        raise NotInStore(self.url, fact, "Its owner's push may have failed: tell them")

    def _beside(self, release: Release, name: str) -> str:
        return f"{release.platform}/{name}"


class _Files(ObjectReader):
    """A repository's files by path and, once a release is found, as the blobs of a store."""

    def __init__(self, address: str) -> None:
        name, revision = repository(address)
        self.url = address
        self._at, hub = quote(revision, safe=""), endpoint()
        self._web, self._api = (
            HttpReader(
                address,
                authorization=_authorization(),
                login="set HF_TOKEN to a token that may read it",
            )
            for address in (f"{hub}/{name}/resolve/{self._at}", f"{hub}/api/models/{name}/revision")
        )
        self._paths: dict[str, str] = {}

    def platforms(self) -> list[str]:
        """Return the platforms of the releases, as the Hub's API lists them."""
        listed = self._api.read_small(self._at, _MOST_LIST_BYTES)
        with suppress(Malformed, LookupError, TypeError):
            names = [PurePosixPath(str(each["rfilename"])) for each in load(listed)["siblings"]]
            return sorted(str(name.parent) for name in names if name.name == MANIFEST)
        return []

    def show(self, folder: str, names: dict[str, str]) -> None:
        """Make the files of a folder available as blobs under their sha256."""
        self._paths = {blob_key(sha256): f"{folder}/{name}" for sha256, name in names.items()}

    pauses = HttpReader.pauses

    def parts(self, key: str, start: int = 0, end: int | None = None) -> Parts:
        """See `ObjectReader.parts`."""
        return self._web.parts(self._paths.get(key, key), start, end)
