"""What was said and when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Token", "Transcript", "Word"]


@dataclass(frozen=True)
class Token:
    """A token that the model emitted, and when, in seconds from the recording's beginning."""

    id: int
    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Word:
    """A word, and when it was said, in seconds from the recording's beginning."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The text of a recording of `duration` seconds."""

    text: str
    words: tuple[Word, ...]
    tokens: tuple[Token, ...]
    duration: float
