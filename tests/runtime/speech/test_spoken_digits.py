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
    from collections.abc import Mapping

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


def _wrong(
    digits: Path,
    said: list[tuple[np.ndarray, str]],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> float:
    """The word error rate of `menagerie transcribe`."""
    wrong = words = 0
    for samples, text in said:
        soundfile.write(folder / "a.wav", samples, _RATE, subtype="PCM_16")
        assert main(["transcribe", str(digits), str(folder / "a.wav")]) == 0
        wrong += distance(capsys.readouterr().out.split(), text.split())
        words += len(text.split())
    return wrong / words


@pytest.mark.parametrize(("level", "most"), [(1.0, 0.07), (0.1, 0.19)])
def test_voices_in_turn_are_heard_whatever_their_levels(
    level: float,
    most: float,
    digits: Path,
    recordings: list[tuple[np.ndarray, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two recordings joined, and the second at a tenth of the first's level."""
    monkeypatch.setattr("menagerie.speech.transcriber.Session", EagerSession)
    turns = zip(recordings[::2], recordings[1::2], strict=True)
    joined = [(np.concatenate([a, b * level]), f"{c} {d}") for (a, c), (b, d) in turns]
    assert _wrong(digits, joined, tmp_path, capsys) <= most


def test_a_long_recording_is_heard_as_well(
    digits: Path,
    recordings: list[tuple[np.ndarray, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All of them one after another: some dozen windows."""
    monkeypatch.setattr("menagerie.speech.transcriber.Session", EagerSession)
    samples, texts = zip(*recordings, strict=True)
    whole = [(np.concatenate(samples), " ".join(texts))]
    assert _wrong(digits, whole, tmp_path, capsys) <= 0.1


def test_the_head_that_an_entry_names_first_is_used(tmp_path: Path) -> None:
    """Not the first of the alphabet: its order is kept in a bundle."""
    spec = load_manifest().spec("spoken_digits")
    assert spec.speech is not None
    bundle._write_speech(tmp_path, SpeechParts(recipe(spec.speech), None))
    heads = list(read_recipe(tmp_path / "speech.json", ["listen", "emit"]).spoken)
    assert heads == list(spec.speech.heads)
    assert heads != sorted(heads)
