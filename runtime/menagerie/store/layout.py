"""The keys of a store's files.

::

    blobs/<aa>/<sha256>                         a file; <aa> are the first two digits of its sha256
    releases/<model>/<target>/<build key>.json  a bundle's manifest.json, byte for byte
    releases/<model>/<target>/<build key>.confirmed.json   the same build's, once an emulated one
                                                was validated on a device; it takes precedence
    verdicts/<model>/<target>/<build key>.json  the result of its last verification
    candidates/<model>/<target>/<build key>.json  a candidate's manifest.json, by its converter
    signatures/<model>/<target>/<build key>.json  a release's signature.json; `.confirmed` as above
    signatures/<model>/<target>/<build key>.sig   its model.sig; `.confirmed` as above
    provenance/<model>/<target>/<build key>.json  the origin of a release; signed
    ledgers/<model>/<platform>.json             promoted releases, in order; signed; a platform
                                                begins with its target: cpu-linux-x86_64
    catalogue/                                  a site about promoted releases; it links the blobs
    metadata/                                   of The Update Framework, over the ledgers
    publishing/<uuid>.json                      blobs that a publisher currently relies on
    sweeping/<uuid>.json                        blobs that a sweep is currently removing
    sweeping/clock-<uuid>                       a file by which a sweep reads the store's clock
    leases/<build key>.json                     the current converter of this build
    submissions/<sha256>.json                   a manifest folder's files, by path, size and sha256
    pages/<sha256>.html                         a report of a run without a release; temporary
    archives/<sha256>.zip                       a release as one file, under the sha256
                                                of its document; temporary
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Build = tuple[str, str, str]  # model, target, build key
MAX_VERDICT_BYTES = 2**20
BLOBS = "blobs/"
METADATA = "metadata/"
PUBLISHING = "publishing/"
SWEEPING = "sweeping/"
_BUILD = re.compile(r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)/([0-9a-f]{64})")
_CONFIRMED = {"releases/", "signatures/"}  # the kinds of files that a device may validate later
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOTE = re.compile(r"(?:publishing|sweeping)/[0-9a-f]{32}\.json|sweeping/clock-[0-9a-f]{32}")


@dataclass(frozen=True)
class Keys:
    """The keys of one kind of file; call it with names, such as a build's, to get a key."""

    folder: str  # the keys' prefix, with a slash at its end
    ending: str = ".json"  # the keys' suffix

    def __call__(self, *names: str, confirmed: bool = False) -> str:
        """Return the key of the file with these names; `confirmed`: the one a device confirmed."""
        return f"{self.folder}{'/'.join(names)}{'.confirmed' if confirmed else ''}{self.ending}"

    def under(self, model: str | None = None) -> str:
        """Return the common prefix of all these keys, or of one model's."""
        return self.folder if model is None else f"{self.folder}{model}/"

    def build(self, key: str) -> Build | None:
        """Return the model, target and build key in a key; None for a foreign file."""
        late = ".confirmed" if self.folder in _CONFIRMED else ""
        found = _BUILD.fullmatch(self._names(key).removesuffix(late))
        return None if found is None else (found[1], found[2], found[3])

    def digest(self, key: str) -> str | None:
        """Return the digest that is a key's only name; None for a foreign file."""
        names = self._names(key)
        return names if _DIGEST.fullmatch(names) else None

    def _names(self, key: str) -> str:
        sound = key.startswith(self.folder) and key.endswith(self.ending)
        return key[len(self.folder) : len(key) - len(self.ending)] if sound else ""


release_key = Keys("releases/")
candidate_key = Keys("candidates/")
verdict_key = Keys("verdicts/")
signature_key = Keys("signatures/")
model_signature_key = Keys("signatures/", ".sig")
provenance_key = Keys("provenance/")
ledger_key = Keys("ledgers/")
lease_key = Keys("leases/")
submission_key = Keys("submissions/")
page_key = Keys("pages/", ".html")
archive_key = Keys("archives/", ".zip")


def blob_key(sha256: str) -> str:
    """Return the key of the file with this digest."""
    return f"{BLOBS}{sha256[:2]}/{sha256}"


def is_blob_key(key: str) -> bool:
    """Return whether a key is a blob's, not a foreign file's."""
    return _DIGEST.fullmatch(key[-64:]) is not None and key == blob_key(key[-64:])


def is_note_key(key: str) -> bool:
    """Return whether a key belongs to a temporary note of a publisher, a sweep or a lease."""
    return _NOTE.fullmatch(key) is not None or lease_key.digest(key) is not None


def is_linked_key(key: str) -> bool:
    """Return whether a key belongs to a linked page or archive, which is removed by age."""
    return any(kind.digest(key) is not None for kind in (page_key, archive_key))
