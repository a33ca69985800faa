"""Decoders without times: what they say, when, and where a long recording is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from level_model import make_levels

from menagerie.errors import ArtifactError
from menagerie.speech import Transcriber
from menagerie.speech.decoding import Decoder, Emission, greedy_attention, quietest, spread
from menagerie.speech.recipe import AttentionHead, read_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FRAME, _RATE, _HIGH = 400, 16_000, 32_000
_HEAD = {
    "kind": "attention",
    "listen": "listen",
    "emit": "emit",
    "start": 0,
    "end": 1,
    "most_tokens": 9,
}
_TAKES: dict[str, dict[str, Any]] = {
    "listen": {
        "inputs": [{"name": "samples", "dtype": "float32", "shape": [1, "n"]}],
        "dimensions": {"n": [1600, _HIGH, 1]},
    },
    "emit": {"inputs": [{"name": "position", "dtype": "int64", "shape": [1]}], "dimensions": {}},
}


class _Counting:
    """In place of `Session`: the decoder says how many loud pieces its window has, then ends."""

    windows: list[int]

    def __init__(self, *given: Any, **options: Any) -> None:
        del options
        self._program = given[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """`listen`: runs of loud samples. `emit`: their number, then the end."""
        if self._program == "listen":
            self.windows.append(inputs["samples"].shape[1])
            loud = np.abs(inputs["samples"][0]) > 0.1
            begun = np.diff(loud.astype(int), prepend=0) > 0
            count = np.full((1, 1, 1, 1), begun.sum(), np.float32)
            return {"keys": count, "values": count}
        count = 2 + int(inputs["keys"][0, 0, 0, 0])
        best = count if inputs["position"][0] == 0 else 1
        assert inputs["token"][0, 0] == (0 if inputs["position"][0] == 0 else count)
        return {"logits": np.eye(9, dtype=np.float32)[best][None]}


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle whose decoder counts; nothing native is loaded."""
    monkeypatch.setattr("menagerie.speech.transcriber.Session", _Counting)
    _Counting.windows = []
    return make_levels(
        tmp_path / "bundle", _TAKES, frame=_FRAME, overlap=0.0, heads={"only": _HEAD},
        vocabulary={"kind": "plain", "pieces": ["", "", *(f" {n}" for n in range(7))]},
    )  # fmt: skip


def _words(*bounds: tuple[float, float], seconds: float) -> np.ndarray:
    samples = np.full(int(seconds * _RATE), 1e-4, np.float32)
    for start, end in bounds:
        samples[int(start * _RATE) : int(end * _RATE)] = 0.5
    return samples


def test_no_word_is_cut(bundle: Path) -> None:
    """A word that spans the end of two seconds is heard whole, in the next window."""
    samples = _words((0.2, 0.7), (1.0, 1.4), (1.8, 2.3), (2.5, 3.0), seconds=3.2)
    with Transcriber(bundle) as transcriber:
        found = transcriber.transcribe(samples, _RATE)
    assert found.text == "2 2"
    first, second = _Counting.windows
    assert 1.4 * _RATE < first < 1.8 * _RATE
    assert first + second == len(samples)
    assert found.tokens[1].start == pytest.approx(first / _RATE)
    assert found.tokens[-1].end == pytest.approx(3.2)


@pytest.mark.parametrize("seconds", [0.01, 0.1, 2.0])
def test_what_one_window_holds_is_one_window(bundle: Path, seconds: float) -> None:
    """Padded to the least that the program takes; the longest is not cut."""
    with Transcriber(bundle) as transcriber:
        found = transcriber.transcribe(_words((0, seconds), seconds=seconds), _RATE)
    assert found.text == "1"
    assert _Counting.windows == [max(1600, int(seconds * _RATE))]
    assert found.tokens[0].end == pytest.approx(seconds)


def test_a_window_without_a_pause_is_cut_all_the_same() -> None:
    """Behind its middle, at whole frames, so that a recording is heard to its end."""
    cut = quietest(np.full(_HIGH, 0.5, np.float32), _FRAME)
    assert _HIGH / 2 < cut < _HIGH
    assert cut % _FRAME == 0


def test_tokens_are_no_more_than_are_said_in_the_time() -> None:
    """One at least, besides the first token; and never more than the model has positions."""

    def emit(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"logits": np.array([[0.0, 0.0, 1.0]]) + 0 * inputs["position"][0]}

    nothing = np.zeros(1, np.float32)
    for pace, seconds, most in ((6.5, 0.01, 1), (6.5, 2.0, 13), (6.5, 60.0, 19), (None, 0.01, 19)):
        head = AttentionHead(
            kind="attention", listen="l", emit="e", start=0, end=1, most_tokens=20, pace=pace
        )
        assert len(greedy_attention(head, Decoder(emit, nothing, nothing), seconds)) == most


def test_tokens_without_times_are_spread_evenly() -> None:
    """Each ends where the next begins, the last with the window."""
    assert spread([7, 8, 9], 2, 12) == [Emission(7, 2, 5), Emission(8, 5, 8), Emission(9, 8, 12)]
    assert spread([], 2, 12) == []


@pytest.mark.parametrize(
    ("change", "message"), [({"most_tokens": 1}, "no more than the first"), ({"pace": 0.0}, "pace")]
)
def test_a_head_that_could_say_nothing_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """As the recipe is read."""
    folder = make_levels(tmp_path / "bundle", _TAKES, heads={"only": _HEAD})
    path = folder / "speech.json"
    field = next(iter(change))
    before = {"most_tokens": '"most_tokens":9', "pace": '"pace":null'}[field]
    text = path.read_text().replace(": ", ":")
    assert before in text
    path.write_text(text.replace(before, f'"{field}":{change[field]}'))
    with pytest.raises(ArtifactError, match=message):
        read_recipe(path, ["listen", "emit"])
