"""Transcripts as files: text, SubRip and WebVTT captions, JSON."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, NamedTuple

from menagerie.typed_json import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from menagerie.speech.transcript import Transcript, Word

__all__ = ["FORMATS", "as_json", "as_srt", "as_text", "as_vtt"]

_LONGEST_CUE = 6.0  # seconds
_WIDEST_CUE = 60  # characters
_PAUSE = 1.0  # seconds of silence that end a cue


class _Cue(NamedTuple):
    text: str
    start: float
    end: float


def as_text(transcript: Transcript) -> str:
    """The text, a line."""
    return transcript.text + "\n"


def as_srt(transcript: Transcript) -> str:
    """SubRip: numbered cues, `00:00:01,200 --> 00:00:02,360`."""
    return "\n".join(
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(_cues(transcript.words), 1)
    )


def as_vtt(transcript: Transcript) -> str:
    """WebVTT, as browsers read it; its text is escaped as in HTML."""
    cues = (
        f"\n{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{html.escape(cue.text, False)}\n"
        for cue in _cues(transcript.words)
    )
    return "WEBVTT\n" + "".join(cues)


def as_json(transcript: Transcript) -> str:
    """Text, words, tokens and duration, all times in seconds."""
    return json.dumps(plain(transcript), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: dict[str, Callable[[Transcript], str]] = {
    "txt": as_text,
    "srt": as_srt,
    "vtt": as_vtt,
    "json": as_json,
}


def _cues(words: tuple[Word, ...]) -> list[_Cue]:
    cues: list[_Cue] = []
    for word in words:
        if cues:
            last = cues[-1]
            text = f"{last.text} {word.text}"
            near = word.start - last.end < _PAUSE
            if near and len(text) <= _WIDEST_CUE and word.end - last.start <= _LONGEST_CUE:
                cues[-1] = _Cue(text, last.start, word.end)
                continue
        cues.append(_Cue(word.text, word.start, word.end))
    return cues


def _clock(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
