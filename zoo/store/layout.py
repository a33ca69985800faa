"""Where things lie in a store.

::

    blobs/<aa>/<sha256>                         a file; <aa> are the first two digits of its sha256
    releases/<model>/<target>/<build key>.json  a bundle's manifest.json, byte for byte
    latest/<model>/<target>.json                a summary of the line above
"""

from __future__ import annotations

import re

__all__ = ["blob_key", "latest_key", "parse_release_key", "release_key", "releases_prefix"]

_RELEASE = re.compile(r"releases/([a-z][a-z0-9_]*)/([a-z][a-z0-9_]*)/([0-9a-f]{64})\.json")
MAX_SUMMARY_BYTES = 2**20


def blob_key(sha256: str) -> str:
    """The key of the file with this digest."""
    return f"blobs/{sha256[:2]}/{sha256}"


def release_key(model: str, target: str, build_key: str) -> str:
    """The key of a release's document."""
    return f"releases/{model}/{target}/{build_key}.json"


def releases_prefix(model: str | None = None, target: str | None = None) -> str:
    """What the keys of all releases (of a model, and of a target) start with."""
    if model is None:
        return "releases/"
    return f"releases/{model}/" if target is None else f"releases/{model}/{target}/"


def parse_release_key(key: str) -> tuple[str, str, str] | None:
    """Model, target and build key in a release's key; None for a file of somebody else."""
    found = _RELEASE.fullmatch(key)
    return None if found is None else (found[1], found[2], found[3])


def latest_key(model: str, target: str) -> str:
    """The key of the summary for a model and a target."""
    return f"latest/{model}/{target}.json"
