"""Speech recipes of entries, and recordings for measuring a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from menagerie.errors import SpeechError
from menagerie.speech.audio import at_rate, open_audio
from menagerie.speech.recipe import Recipe
from menagerie.speech.word_errors import HeldOut
from menagerie.typed_json import Malformed, check
from zoo.errors import SourceError

if TYPE_CHECKING:
    from zoo.spec import SpeechSpec

TRANSCRIPTS = "transcripts.tsv"
_SPACES = {"sentencepiece": "\u2581", "bytes": "\u0120", "plain": " "}  # each form's space


def recipe(spec: SpeechSpec, errors: Mapping[str, int] | None = None, slack: int = 0) -> Recipe:
    """Return the bundle's recipe for an entry's speech fields.

    `errors` has eager's word errors by head, if the entry has a gate; `slack` more words may be
    wrong. Raise SourceError if the runtime would refuse the recipe.
    """
    fields = spec.model_dump(mode="json", exclude={"gate", "vocabulary"})
    for head in fields["heads"].values():
        if head["kind"] == "whisper":
            head["task"] = head.pop("tasks").get(head["task"])
    words = spec.vocabulary
    fields["vocabulary"] = {
        "kind": words.kind,
        "pieces": list(
            words.pieces or (f"{_SPACES[words.kind]}t{n}" for n in range(words.numbered))
        ),
        "special": list(words.special),
    }
    if spec.gate is not None and errors is not None:
        fields["gate"] = {"most": spec.gate.most, "errors": dict(errors), "slack": slack or None}
        if not spec.gate.emulated:  # older runtimes can still read the others
            fields["gate"]["emulated"] = False
    try:
        found: Recipe = check(Recipe, fields)
    except Malformed as error:
        raise SourceError("speech", str(error), "Fix the entry") from None
    return found


def held_out(folder: Path, rate: int) -> HeldOut:
    """Read the recordings of a folder and their texts in transcripts.tsv.

    Raise SourceError if the list is missing, a line has no tab, or a recording cannot be read.
    """
    listing = folder / TRANSCRIPTS
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(str(listing), f"cannot be read ({error})", "Write it") from error
    recordings, texts = [], []
    for number, line in enumerate(lines, 1):
        name, tab, text = line.partition("\t")
        if not tab or "/" in name:
            raise SourceError(f"{listing}:{number}", "is not a file's name, a tab and its text")
        try:
            with open_audio(folder / name) as recording:
                blocks = list(at_rate(recording, rate))
        except (SpeechError, OSError) as error:
            raise SourceError(f"{listing}:{number}", f"{name} cannot be read: {error}") from error
        sound = np.concatenate(blocks) if blocks else np.empty(0, np.float32)
        recordings.append(np.clip(np.round(sound * 32768.0), -32768, 32767).astype(np.int16))
        texts.append(text)
    if not recordings:
        raise SourceError(str(listing), "names no recording")
    lengths = np.array([len(one) for one in recordings], np.int64)
    return HeldOut(np.concatenate(recordings), lengths, tuple(texts))
