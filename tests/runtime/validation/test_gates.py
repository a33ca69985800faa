"""What the gates let pass: eager's count, or as many more or fewer as the slack allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from menagerie.format.bundle_manifest import BundleProgram, TensorSpec, unsealed
from menagerie.speech.recipe import AttentionHead, Recipe, Vocabulary, WordGate
from menagerie.speech.word_errors import HeldOut, words_of
from menagerie.validation.checks import LoadedProgram, word_errors
from menagerie.validation.findings import AccuracyResult, WordErrors

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("eager", "artifact", "slack", "passed"),
    [
        (350, 350, 0, True),
        (350, 351, 0, False),
        (350, 349, 0, False),
        (350, 351, 1, True),
        (350, 349, 1, True),
        (350, 352, 1, False),
    ],
)
def test_images(eager: int, artifact: int, slack: int, passed: bool) -> None:
    """Counted, though the record has fractions; better than eager is a difference, too."""
    result = AccuracyResult(samples=360, eager=eager / 360, artifact=artifact / 360, slack=slack)
    assert result.passed is passed


@pytest.mark.parametrize(
    ("eager", "artifact", "slack", "passed"),
    [(40, 40, 0, True), (40, 41, 0, False), (40, 45, 5, True), (40, 46, 5, False)],
)
def test_words(eager: int, artifact: int, slack: int, passed: bool) -> None:
    """The slack is of words."""
    result = WordErrors(
        head="ctc", words=1000, eager=eager, artifact=artifact, most=0.05, slack=slack
    )
    assert result.passed is passed


@pytest.mark.parametrize(("artifact", "passed"), [(360, True), (340, True), (339, False)])
def test_what_judges_alone_may_be_better(artifact: int, passed: bool) -> None:
    """In place of tolerances only a loss counts, of images and of words."""
    images = AccuracyResult(
        samples=360, eager=350 / 360, artifact=artifact / 360, slack=10, judges=True
    )
    words = WordErrors(
        head="ctc", words=1000, eager=10, artifact=360 - artifact, most=0.05, slack=10, judges=True
    )
    assert (images.passed, words.passed) == (passed, passed)


def test_slack_lets_no_head_err_too_often() -> None:
    """The highest rate holds whatever the slack."""
    result = WordErrors(head="ctc", words=1000, eager=49, artifact=51, most=0.05, slack=5)
    assert not result.passed


class Listening:
    """A session without state, which hears nothing in particular."""

    keeps_state = False

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return what a decoder is fed with."""
        del inputs
        return {"keys": np.zeros(1, np.float32), "values": np.zeros(1, np.float32)}


class Counting:
    """A session whose token is the number of calls since its first state, up to `end`."""

    keeps_state = True
    end = 4

    def __init__(self) -> None:
        self._calls = 7  # a golden case was run before

    def reset(self) -> None:
        """Begin anew."""
        self._calls = 0

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Score the token highest."""
        del inputs
        self._calls += 1
        return {"logits": np.eye(self.end + 1, dtype=np.float32)[None, min(self._calls, self.end)]}


def _loaded(session: Any, *inputs: TensorSpec) -> LoadedProgram:
    entry = BundleProgram(
        name="any",
        files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
        golden_cases=1,
        inputs=inputs,
        outputs=(),
        dimensions={},
        constants={},
        symbols=(),
    )
    return LoadedProgram(entry, session, None)  # type: ignore[arg-type]


def test_a_decoder_goes_on_from_its_last_token(tmp_path: Path) -> None:
    """Words of a recogniser that keeps state between steps are those that it says in use.

    The sessions are not real: a converted recogniser takes a minute.
    """
    recipe = Recipe(
        heads={"h": AttentionHead(kind="attention", start=0, end=Counting.end, most_tokens=9)},
        vocabulary=Vocabulary(
            kind="sentencepiece", pieces=("\u2581", "\u2581One,", "\u2581two", "\u2581three.", "e")
        ),
    )
    samples = np.zeros(16000, np.int16)
    known = HeldOut(samples, np.array([len(samples)]), ("one two three",))
    save_file(known.tensors(), path := tmp_path / "held_out.safetensors")
    programs = {
        "listen": _loaded(Listening(), TensorSpec("samples", "float32", (1, 16000))),
        "emit": _loaded(Counting(), TensorSpec("position", "int64", (1,))),
    }
    [found] = word_errors(programs, recipe, WordGate(errors={"h": 0}, most=0.5), path)
    assert (found.words, found.artifact, found.passed) == (3, 0, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("He was, in 'short', ill-disposed.", ["he", "was", "in", "short", "ill", "disposed"]),
        ("don\u2019t don't", ["don't", "don't"]),
        ("1,000 or 3.14; '' __ !", ["1,000", "or", "3.14"]),
        ("cafe\u0301", ["caf\u00e9"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", ["\u0939\u093f\u0928\u094d\u0926\u0940"]),
    ],
)
def test_words_have_no_punctuation(text: str, words: list[str]) -> None:
    """Recognisers differ in it and in case; what is within a word is a part of it."""
    assert words_of(text) == words
