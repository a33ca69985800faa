"""The committed weights of `spoken_digits`, on recordings that are long, joined, or uneven."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
import soundfile

from menagerie.cli import main
from menagerie.speech.recipe import read_recipe
from menagerie.speech.word_errors import distance
from menagerie.typed_json import plain
from transforms import bundle
from transforms.eager import SpeechParts, eager_program
from zoo.manifest import OUR_MODELS, load_manifest
from zoo.sources import load
from zoo.speech import TRANSCRIPTS, recipe

sys.path.insert(0, str(Path(__file__).parent))

from level_model import make_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from menagerie.speech.recogniser import Program

_RATE = 16_000
_FOLDER = OUR_MODELS / "spoken_digits" / "held_out"


class EagerSession:
    """In place of `Session`: the committed weights in eager PyTorch."""

    programs: Mapping[str, Program]

    def __init__(
        self, bundle: Path, program: str, threads: int | None, *, allow_unsigned: bool | None
    ) -> None:
        self.run = self.programs[program].run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def recordings() -> list[tuple[np.ndarray, str]]:
    """What the entry's gate is measured on: espeak-ng's voices that the training never heard."""
    lines = (_FOLDER / TRANSCRIPTS).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines)
    return [(soundfile.read(_FOLDER / name, dtype="float32")[0], text) for name, text in pairs]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the entry's recipe; nothing native is loaded."""
    manifest = load_manifest()
    spec, origin = manifest.spec("spoken_digits"), manifest.origins["spoken_digits"].file
    model = load("spoken_digits", spec, origin=origin, random_weights=None, allow_factories=False)
    programs = {one.name: eager_program(model.module, one) for one in spec.programs}
    EagerSession.programs = programs
    takes: dict[str, dict[str, Any]] = {
        name: {"inputs": [plain(one) for one in program.inputs], "dimensions": program.dimensions}
        for name, program in programs.items()
    }
    assert spec.speech is not None
    fields = plain(recipe(spec.speech))
    return make_levels(tmp_path_factory.mktemp("digits") / "bundle", takes, **fields)


@pytest.fixture
def word_errors(
    digits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[list[tuple[np.ndarray, str]]], float]:
    """The word error rate of `menagerie transcribe` on recordings with their texts."""
    monkeypatch.setattr("menagerie.speech.transcriber.Session", EagerSession)

    def rate(said: list[tuple[np.ndarray, str]]) -> float:
        wrong = words = 0
        for samples, text in said:
            soundfile.write(tmp_path / "a.wav", samples, _RATE, subtype="PCM_16")
            assert main(["transcribe", str(digits), str(tmp_path / "a.wav")]) == 0
            wrong += distance(capsys.readouterr().out.split(), text.split())
            words += len(text.split())
        return wrong / words

    return rate


@pytest.mark.parametrize(("level", "most"), [(1.0, 0.07), (0.1, 0.19)])
def test_voices_in_turn_are_heard_whatever_their_levels(
    level: float,
    most: float,
    recordings: list[tuple[np.ndarray, str]],
    word_errors: Callable[[list[tuple[np.ndarray, str]]], float],
) -> None:
    """Two recordings joined, and the second at a tenth of the first's level."""
    turns = zip(recordings[::2], recordings[1::2], strict=True)
    joined = [(np.concatenate([a, b * level]), f"{c} {d}") for (a, c), (b, d) in turns]
    assert word_errors(joined) <= most


def test_a_long_recording_is_heard_as_well(
    recordings: list[tuple[np.ndarray, str]],
    word_errors: Callable[[list[tuple[np.ndarray, str]]], float],
) -> None:
    """All of them one after another: some dozen windows."""
    samples, texts = zip(*recordings, strict=True)
    assert word_errors([(np.concatenate(samples), " ".join(texts))]) <= 0.1


def test_the_head_that_an_entry_names_first_is_used(tmp_path: Path) -> None:
    """Not the first of the alphabet: its order is kept in a bundle."""
    spec = load_manifest().spec("spoken_digits")
    assert spec.speech is not None
    bundle._write_speech(tmp_path, SpeechParts(recipe(spec.speech), None))
    heads = list(read_recipe(tmp_path / "speech.json", ["listen", "emit"]).spoken)
    assert heads == list(spec.speech.heads)
    assert heads != sorted(heads)
