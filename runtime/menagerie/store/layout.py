"""Where things lie in a store.

::

    blobs/<aa>/<sha256>                         a file; <aa> are the first two digits of its sha256
    releases/<model>/<target>/<build key>.json  a bundle's manifest.json, byte for byte
    releases/<model>/<target>/<build key>.confirmed.json   the same build's, once an emulated one
                                                was validated on a device; it goes before the other
    verdicts/<model>/<target>/<build key>.json  how its last verification ended
    candidates/<model>/<target>/<build key>.json  the same, proposed by its converter
    signatures/<model>/<target>/<build key>.json  a release's signature.json; `.confirmed` as above
    signatures/<model>/<target>/<build key>.sig   its model.sig; `.confirmed` as above
    provenance/<model>/<target>/<build key>.json  where a release comes from; signed
    ledgers/<model>/<platform>.json             which were promoted, in order; signed; a platform
                                                begins with its target: cpu-linux-x86_64
    catalogue/                                  a site of what was promoted; links the blobs
    metadata/                                   of The Update Framework, over the ledgers
    publishing/<uuid>.json                      blobs that a publisher counts on just now
    sweeping/<uuid>.json                        blobs that a sweep is removing just now
    sweeping/clock-<uuid>                       what a sweep reads the store's clock from
    leases/<build key>.json                     who converts this just now
    submissions/<sha256>.json                   a manifest folder's files, by path, size and sha256
    pages/<sha256>.html                         a report of a run that made no release, for a while
    archives/<sha256>.zip                       a release as one file, for a while, under the sha256
                                                of its document
"""

from __future__ import annotations

import re

_BUILD = r"([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)/([0-9a-f]{64})"
_RELEASE = re.compile(rf"releases/{_BUILD}(?:\.confirmed)?\.json")
_CANDIDATE = re.compile(rf"candidates/{_BUILD}\.json")
_VERDICT = re.compile(rf"verdicts/{_BUILD}\.json")
_BLOB = re.compile(r"blobs/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_NOTE = re.compile(
    r"(?:publishing|sweeping)/[0-9a-f]{32}\.json|sweeping/clock-[0-9a-f]{32}"
    r"|leases/[0-9a-f]{64}\.json"
)
_SUBMISSION = re.compile(r"submissions/([0-9a-f]{64})\.json")
_LINKED = re.compile(r"pages/[0-9a-f]{64}\.html|archives/[0-9a-f]{64}\.zip")
MAX_VERDICT_BYTES = 2**20
ARCHIVES = "archives/"
BLOBS = "blobs/"
LEASES = "leases/"
PAGES = "pages/"
PUBLISHING = "publishing/"
SUBMISSIONS = "submissions/"
SWEEPING = "sweeping/"
CANDIDATES = "candidates/"
LEDGERS = "ledgers/"
METADATA = "metadata/"
VERDICTS = "verdicts/"


def blob_key(sha256: str) -> str:
    """The key of the file with this digest."""
    return f"blobs/{sha256[:2]}/{sha256}"


def parse_blob_key(key: str) -> str | None:
    """The digest in a blob's key; None for a stranger's file."""
    found = _BLOB.fullmatch(key)
    return None if found is None else found[2]


def is_note_key(key: str) -> bool:
    """Whether it is of a note that goes with its writer: of a publisher, a sweep or a lease."""
    return _NOTE.fullmatch(key) is not None


def release_key(model: str, target: str, build_key: str, *, confirmed: bool = False) -> str:
    """The key of a release's document; `confirmed`: of the one that a device wrote afterwards."""
    suffix = ".confirmed" if confirmed else ""
    return f"releases/{model}/{target}/{build_key}{suffix}.json"


def candidate_key(model: str, target: str, build_key: str) -> str:
    """The key of the document of a build that waits for its promotion."""
    return f"{CANDIDATES}{model}/{target}/{build_key}.json"


def parse_candidate_key(key: str) -> tuple[str, str, str] | None:
    """Model, target and build key in the key of a candidate; None for a stranger's file."""
    found = _CANDIDATE.fullmatch(key)
    return None if found is None else (found[1], found[2], found[3])


def signature_key(model: str, target: str, build_key: str, *, confirmed: bool = False) -> str:
    """The key of the signature over a release's document."""
    suffix = ".confirmed" if confirmed else ""
    return f"signatures/{model}/{target}/{build_key}{suffix}.json"


def model_signature_key(model: str, target: str, build_key: str, *, confirmed: bool = False) -> str:
    """The key of a release's model.sig."""
    key = signature_key(model, target, build_key, confirmed=confirmed)
    return f"{key.removesuffix('.json')}.sig"


def provenance_key(model: str, target: str, build_key: str) -> str:
    """The key of the signed statement of where a release comes from."""
    return f"provenance/{model}/{target}/{build_key}.json"


def ledger_key(model: str, platform: str) -> str:
    """The key of the ledger of a model's releases for a platform."""
    return f"ledgers/{model}/{platform}.json"


def releases_prefix(model: str | None = None, target: str | None = None) -> str:
    """What the keys of all releases (of a model, and of a target) start with."""
    if model is None:
        return "releases/"
    return f"releases/{model}/" if target is None else f"releases/{model}/{target}/"


def parse_release_key(key: str) -> tuple[str, str, str] | None:
    """Model, target and build key in the key of either document; None for a stranger's file."""
    found = _RELEASE.fullmatch(key)
    return None if found is None else (found[1], found[2], found[3])


def verdict_key(model: str, target: str, build_key: str) -> str:
    """The key of a release's last verdict."""
    return f"{VERDICTS}{model}/{target}/{build_key}.json"


def parse_verdict_key(key: str) -> tuple[str, str, str] | None:
    """Model, target and build key in the key of a verdict; None for a stranger's file."""
    found = _VERDICT.fullmatch(key)
    return None if found is None else (found[1], found[2], found[3])


def submission_key(sha256: str) -> str:
    """The key of the submission whose document has this digest."""
    return f"{SUBMISSIONS}{sha256}.json"


def parse_submission_key(key: str) -> str | None:
    """The digest in a submission's key; None for a stranger's file."""
    found = _SUBMISSION.fullmatch(key)
    return None if found is None else found[1]


def page_key(sha256: str) -> str:
    """The key of a report with this digest that stands beside all releases."""
    return f"{PAGES}{sha256}.html"


def archive_key(sha256: str) -> str:
    """The key of the zip file of the release whose document has this digest."""
    return f"{ARCHIVES}{sha256}.zip"


def is_linked_key(key: str) -> bool:
    """Whether it is of a page or an archive, which are there to be linked and go with their age."""
    return _LINKED.fullmatch(key) is not None


def lease_key(build_key: str) -> str:
    """The key of the note that says who converts this build."""
    return f"{LEASES}{build_key}.json"
