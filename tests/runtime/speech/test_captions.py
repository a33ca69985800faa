"""Transcripts as text, SubRip, WebVTT and JSON."""

from __future__ import annotations

import json

from menagerie.speech.transcript import Token, Transcript, Word, as_json, as_srt, as_text, as_vtt

_WORDS = (Word("one", 0.48, 0.8), Word("two", 0.88, 1.2), Word("a<b", 3599.9996, 3601.04))
_TRANSCRIPT = Transcript(
    text="one two a<b", words=_WORDS, tokens=(Token(4, " one", 0.48, 0.8),), duration=3601.5
)


def test_text_is_a_line() -> None:
    """And an empty recording an empty one."""
    assert as_text(_TRANSCRIPT) == "one two a<b\n"
    assert as_text(Transcript(text="", words=(), tokens=(), duration=1.0)) == "\n"


def test_subrip_numbers_its_cues() -> None:
    """A pause parts cues; hours are counted, and thousandths rounded without 60 seconds."""
    assert as_srt(_TRANSCRIPT) == (
        "1\n00:00:00,480 --> 00:00:01,200\none two\n"
        "\n2\n01:00:00,000 --> 01:00:01,040\na<b\n"
    )  # fmt: skip


def test_webvtt_escapes_its_text() -> None:
    """What browsers would take for a tag is escaped."""
    assert as_vtt(_TRANSCRIPT) == (
        "WEBVTT\n\n00:00:00.480 --> 00:00:01.200\none two\n"
        "\n01:00:00.000 --> 01:00:01.040\na&lt;b\n"
    )


def test_cues_are_short() -> None:
    """Fluent speech is parted before a cue is wider than a line or longer than six seconds."""
    words = tuple(Word("word", 0.5 * n, 0.5 * n + 0.4) for n in range(60))
    cues = as_srt(Transcript(text="", words=words, tokens=(), duration=30.0)).split("\n\n")

    assert sum(cue.count("word") for cue in cues) == 60
    assert len(cues) >= 5
    assert max(len(cue.splitlines()[2]) for cue in cues) <= 60


def test_json_has_all_times() -> None:
    """In seconds, of words and tokens."""
    assert json.loads(as_json(_TRANSCRIPT)) == {
        "text": "one two a<b",
        "words": [
            {"text": "one", "start": 0.48, "end": 0.8},
            {"text": "two", "start": 0.88, "end": 1.2},
            {"text": "a<b", "start": 3599.9996, "end": 3601.04},
        ],
        "tokens": [{"id": 4, "text": " one", "start": 0.48, "end": 0.8}],
        "duration": 3601.5,
    }
