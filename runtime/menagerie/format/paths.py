"""What a path inside a bundle may look like."""

from __future__ import annotations

import re

__all__ = ["MANIFEST", "PARTIAL", "SIGNATURE", "bundle_path"]

MANIFEST = "manifest.json"
SIGNATURE = "signature.json"  # over the manifest's bytes; where it is missing, nobody vouches
PARTIAL = ".manifest.json.partial"  # the manifest while it is written; never part of a bundle

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LONGEST = 200


def bundle_path(text: str) -> str:
    """Returns `text` if it is a path that rule 4 of FORMAT.md allows.

    Raises:
        ValueError: it is not; the message says why.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a path has at most {_LONGEST} characters")
    if not all(_SEGMENT.fullmatch(segment) for segment in text.split("/")):
        raise ValueError(
            f"{text!r} is not a relative path of letters, digits, '_', '.', '-' and '/' "
            "whose parts start with a letter, a digit or '_'"
        )
    if text.lower() in {MANIFEST, SIGNATURE}:
        raise ValueError(f"{MANIFEST} lists neither itself nor {SIGNATURE}")
    return text
