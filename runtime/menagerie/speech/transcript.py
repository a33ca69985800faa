"""Transcripts with times, the spelling of tokens, and text, captions and JSON as formats."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from menagerie.speech.recipe import Vocabulary
from menagerie.typed_json import plain

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"
_LONGEST_CUE = 6.0  # seconds
_WIDEST_CUE = 60  # characters
_PAUSE = 1.0  # seconds of silence that end a cue


@dataclass(frozen=True)
class Token:
    """A token and its time, in seconds from the start of the recording."""

    id: int
    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Word:
    """A word and its time, in seconds from the start of the recording."""

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


class Speller:
    """The spelling of tokens by a model's vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = vocabulary.pieces
        self._kind = vocabulary.kind
        self._special = frozenset(vocabulary.special)

    def piece(self, token: int) -> str:
        """Return the text of one token, with U+FFFD for an incomplete character."""
        return self._bytes(token).decode("utf-8", "replace")

    def written(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with a leading space if the first token begins a word."""
        return b"".join(map(self._bytes, tokens)).decode("utf-8", "replace")

    def words(self, tokens: Sequence[Token]) -> tuple[Word, ...]:
        """Return the words that the tokens spell; a token with a leading space begins a word.

        A token that is only a space, as in vocabularies of characters, separates words.
        """
        groups: list[list[Token]] = [[]]
        for token in tokens:
            written = self._bytes(token.id)
            if written[:1].isspace():
                groups.append([])
            if written.strip():
                groups[-1].append(token)
        return tuple(
            Word(self.written([token.id for token in group]).strip(), group[0].start, group[-1].end)
            for group in groups
            if group
        )

    def _bytes(self, token: int) -> bytes:
        """Return a token's UTF-8 bytes; a character may span neighbouring tokens."""
        if token in self._special or not 0 <= token < len(self._pieces):
            return b""
        piece = self._pieces[token]
        if self._kind == "bytes":
            return bytes(_byte_alphabet()[character] for character in piece)
        if self._kind == "sentencepiece":
            if byte := _BYTE.fullmatch(piece):
                return bytes([int(byte.group(1), 16)])
            piece = piece.replace(_SPACE, " ")
        return piece.encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character of GPT-2's alphabet: printable Latin-1, then 256 on."""
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {
        chr(256 + count): byte for count, byte in enumerate(others)
    }


def as_text(transcript: Transcript) -> str:
    """Return the text as one line."""
    return transcript.text + "\n"


def as_srt(transcript: Transcript) -> str:
    """Return the transcript as SubRip: numbered cues, `00:00:01,200 --> 00:00:02,360`."""
    return "\n".join(
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(_cues(transcript.words), 1)
    )


def as_vtt(transcript: Transcript) -> str:
    """Return the transcript as WebVTT for browsers, with text escaped as in HTML."""
    cues = (
        f"\n{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{html.escape(cue.text, False)}\n"
        for cue in _cues(transcript.words)
    )
    return "WEBVTT\n" + "".join(cues)


def as_json(transcript: Transcript) -> str:
    """Return text, words, tokens and duration as JSON, with times in seconds."""
    return json.dumps(plain(transcript), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Transcript], str]] = {
    "txt": as_text,
    "srt": as_srt,
    "vtt": as_vtt,
    "json": as_json,
}


def _cues(words: tuple[Word, ...]) -> list[Word]:
    cues: list[Word] = []
    for word in words:
        if cues:
            last = cues[-1]
            text = f"{last.text} {word.text}"
            near = word.start - last.end < _PAUSE
            if near and len(text) <= _WIDEST_CUE and word.end - last.start <= _LONGEST_CUE:
                cues[-1] = Word(text, last.start, word.end)
                continue
        cues.append(word)
    return cues


def _clock(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
