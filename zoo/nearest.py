"""The nearest known word to one that was mistyped."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["advice", "nearest", "suggestion"]


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word most like `word`, if any is like it at all."""
    return next(iter(difflib.get_close_matches(str(word), list(known), n=1)), None)


def suggestion(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` to end a fact with, or nothing."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found else ""


def advice(word: object, known: Iterable[str], otherwise: str) -> str:
    """`Did you mean 'x'? ` and `otherwise`, as an error's next step."""
    found = nearest(word, known)
    return (f"Did you mean {found!r}? " if found else "") + otherwise
