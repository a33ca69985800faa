"""Text from elsewhere on its way to a terminal or into a message."""

from __future__ import annotations

import json
from unicodedata import category
from urllib.parse import urlsplit, urlunsplit

__all__ = ["printable", "shown_address", "shown_json"]


def printable(text: str, *, keep: str = "\n\t") -> str:
    """`text` with everything that could steer a terminal written out."""
    return "".join(
        c if c.isprintable() or c in keep or category(c) == "Zs" else _written_out(c) for c in text
    )


def shown_json(text: str) -> str:
    """JSON of the same value in which everything that could steer a terminal is escaped."""
    return "".join(
        c if c.isprintable() or c == "\n" or category(c) == "Zs" else json.dumps(c)[1:-1]
        for c in text
    )


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


def shown_address(url: str) -> str:
    """`url` without what may be secret in it: a user's name and password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
