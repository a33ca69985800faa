"""Recordings to text by a Whisper, window after window, as `zoo transcribe` has it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
import torch
from level_model import make_levels
from small_whisper import END, HEAD, NO_TIMESTAMPS, POSITIONS, SECONDS, small_whisper
from utterances import RATE, UTTERANCES

from menagerie.errors import SpeechError
from menagerie.speech import Transcriber
from menagerie.speech.recipe import Recipe, Vocabulary
from menagerie.speech.recogniser import Program, Recogniser
from zoo.models.builders.recognisers import parts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WINDOW = SECONDS * RATE
_FIXED = {"dimensions": {}}
_TAKES: dict[str, dict[str, Any]] = {
    "listen": _FIXED | {"inputs": [{"name": "samples", "dtype": "float32", "shape": [1, _WINDOW]}]},
    "emit": _FIXED | {"inputs": [{"name": "position", "dtype": "int64", "shape": [1]}]},
}
_PIECES = [f"\u2581w{n}" for n in range(NO_TIMESTAMPS + POSITIONS + 2)]


class EagerSession:
    """In place of `Session`: the small Whisper's programs in eager PyTorch."""

    whisper: Any

    def __init__(
        self, bundle: Path, program: str, threads: int | None, *, allow_unsigned: bool | None
    ) -> None:
        del bundle, threads, allow_unsigned
        self._part = getattr(self.whisper, program)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One call."""
        with torch.inference_mode():
            given = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
            return {name: value.numpy() for name, value in self._part(**given).items()}


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle with a Whisper's recipe; nothing native is loaded."""
    monkeypatch.setattr("menagerie.speech.transcriber.Session", EagerSession)
    EagerSession.whisper = parts(small_whisper()).eval()
    return make_levels(
        tmp_path / "bundle", _TAKES, frame=320, overlap=0.0, heads={"whisper": json.loads(json.dumps(asdict(HEAD)))},
        vocabulary={"kind": "sentencepiece", "pieces": _PIECES},
    )  # fmt: skip


def long_recording() -> np.ndarray:
    """Some seventeen seconds: three windows and more."""
    return np.concatenate([UTTERANCES[name] for name in sorted(UTTERANCES)[:7]])


def test_a_long_recording_is_heard_window_by_window(bundle: Path) -> None:
    """However it is read, the tokens and times are those of windows that follow their own times."""
    samples = long_recording()
    assert len(samples) > 2.5 * _WINDOW
    with Transcriber(bundle) as transcriber:
        found = transcriber.transcribe(samples, RATE)
        again = transcriber.transcribe(samples, RATE)
    programs = {
        name: Program(EagerSession(bundle, name, None, allow_unsigned=None).run, inputs, {})
        for name, inputs in (("listen", found_inputs("listen")), ("emit", found_inputs("emit")))
    }
    recipe = Recipe(
        rate=RATE, frame=320, overlap=0.0, heads={"whisper": HEAD},
        vocabulary=Vocabulary(kind="sentencepiece", pieces=tuple(_PIECES)),
    )  # fmt: skip
    expected = Recogniser(recipe, HEAD, programs, "test").recognise(samples)
    assert [token.id for token in found.tokens] == [one.token for one in expected]
    assert [token.start for token in found.tokens] == pytest.approx(
        [min(one.start * 320, len(samples)) / RATE for one in expected]
    )
    assert found == again  # what was heard before leaves no trace in the decoder's state
    assert found.duration == pytest.approx(len(samples) / RATE)
    assert len({token.id for token in found.tokens}) > 5
    assert found.text == " ".join(f"w{token.id}" for token in found.tokens)
    assert max(token.id for token in found.tokens) < END
    starts = [token.start for token in found.tokens]
    assert starts == sorted(starts)
    assert starts[-1] > 2 * SECONDS
    assert found.tokens[-1].end <= found.duration


def found_inputs(program: str) -> Any:
    """What a program takes, as types."""
    from menagerie.format.bundle_manifest import TensorSpec
    from menagerie.numerics import Dtype

    return [
        TensorSpec(each["name"], Dtype(each["dtype"]), tuple(each["shape"]))
        for each in _TAKES[program]["inputs"]
    ]


def test_shorter_windows_answer_sooner(bundle: Path) -> None:
    """`chunk` seconds are heard at once, padded to the model's window."""
    samples = long_recording()[: 5 * RATE]
    with Transcriber(bundle, chunk=2.0) as transcriber:
        found = transcriber.transcribe(samples, RATE)
    with Transcriber(bundle) as transcriber:
        first = transcriber.transcribe(samples[: 2 * RATE], RATE)
    assert found.duration == pytest.approx(5.0)
    assert first.tokens[0] == found.tokens[0]


def test_the_language_that_is_spoken_can_be_given(bundle: Path) -> None:
    """It is in the prompt of every window; one that the model does not know is an error."""
    samples = long_recording()[: 2 * _WINDOW]
    said = []
    for language in ("en", "de"):
        with Transcriber(bundle, language=language) as transcriber:
            said.append(transcriber.transcribe(samples, RATE).tokens)
    assert said[0] != said[1]
    with pytest.raises(SpeechError, match=r"does not support language 'fr'\. It knows: de, en"):
        Transcriber(bundle, language="fr")


def test_nothing_is_an_error(bundle: Path) -> None:
    """As with other models."""
    with (
        Transcriber(bundle) as transcriber,
        pytest.raises(SpeechError, match="holds no sample"),
    ):
        transcriber.transcribe(np.empty(0, np.float32), RATE)
