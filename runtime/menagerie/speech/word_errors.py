"""Word errors of an artifact, or of eager PyTorch, on recordings with known words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from menagerie.errors import ArtifactError
from menagerie.speech.recipe import Recipe
from menagerie.speech.recogniser import Program, Recogniser
from menagerie.speech.transcript import Speller
from menagerie.tensor_files import read_tensors

_FULL = 32768.0  # the full scale of 16-bit samples
_OUTSIDE = re.compile(r"(?<![^\W_])[',.]|[',.](?![^\W_])")  # punctuation outside a word


@dataclass(frozen=True)
class HeldOut:
    """Recordings at the model's rate, with their texts."""

    samples: np.ndarray  # (all samples,) int16, one recording after another
    lengths: np.ndarray  # (recordings,) int64
    texts: tuple[str, ...]  # transcripts of the recordings

    @property
    def words(self) -> int:
        """The number of words in all recordings."""
        return sum(len(words_of(text)) for text in self.texts)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the tensors that `read_held_out` reads."""
        text = np.frombuffer("\n".join(self.texts).encode(), np.uint8)
        return {"samples": self.samples, "lengths": self.lengths, "text": text}


def words_of(text: str) -> list[str]:
    """Return a text's words without case and punctuation, in which recognisers differ.

    Apostrophes, commas and points within a word stay: `don't`, `1,000`.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    plain = _OUTSIDE.sub(" ", plain)
    kept = (c if c in "',." or unicodedata.category(c)[0] not in "PS" else " " for c in plain)
    return "".join(kept).split()


def read_held_out(path: Path) -> HeldOut:
    """Read `samples`, `lengths` and `text`, by lines; raise ArtifactError if they do not match."""
    tensors = read_tensors(path)
    if missing := {"samples", "lengths", "text"} - set(tensors):
        raise ArtifactError(str(path), f"lacks {min(missing)!r}")
    try:
        texts = tuple(tensors["text"].tobytes().decode().split("\n"))
    except UnicodeDecodeError:
        raise ArtifactError(str(path), "text is not UTF-8") from None
    found = HeldOut(tensors["samples"], tensors["lengths"], texts)
    lengths = found.lengths
    sound = found.samples.ndim == lengths.ndim == 1 and len(lengths) == len(texts)
    if not sound or bool((lengths < 1).any()) or int(lengths.sum()) != len(found.samples):
        raise ArtifactError(str(path), "samples, lengths and text do not go together")
    return found


def count_errors(
    recipe: Recipe, head: str, programs: Mapping[str, Program], held_out: HeldOut, place: str
) -> int:
    """Count the words that a head misses, adds or gets wrong; raise what `Recogniser` raises."""
    recogniser = Recogniser(recipe, recipe.spoken[head], programs, place)
    speller = Speller(recipe.vocabulary)
    errors, first = 0, 0
    for length, text in zip(held_out.lengths.tolist(), held_out.texts, strict=True):
        samples = held_out.samples[first : first + length].astype(np.float32) / np.float32(_FULL)
        heard = speller.written([one.token for one in recogniser.recognise(samples)])
        errors += distance(words_of(heard), words_of(text))
        first += length
    return errors


def distance(heard: Sequence[object], said: Sequence[object]) -> int:
    """Return the fewest insertions, deletions and substitutions that turn `heard` into `said`."""
    row = list(range(len(said) + 1))
    for count, word in enumerate(heard, 1):
        diagonal, row[0] = row[0], count
        for index, other in enumerate(said, 1):
            best = min(diagonal + (word != other), row[index] + 1, row[index - 1] + 1)
            diagonal, row[index] = row[index], best
    return row[-1]
