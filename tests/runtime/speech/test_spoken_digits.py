"""The committed weights of `spoken_digits`, on recordings that are long, joined, or uneven."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from menagerie.speech import Transcriber
from menagerie.speech.recipe import read_recipe
from transforms import bundle
from transforms.eager import SpeechParts
from zoo.manifest import load_manifest
from zoo.speech import recipe

sys.path.insert(0, str(Path(__file__).parents[2] / "zoo/models"))

from measure_spoken_digits import eager_bundle, errors, sets


@pytest.mark.parametrize(
    ("name", "most"), [("two by two", 15), ("the second at a tenth", 24), ("all in a row", 13)]
)
def test_voices_in_turn_are_heard_however_many_and_loud(name: str, most: int) -> None:
    """Of 287 words, by the head that an entry names first."""
    with eager_bundle() as folder, Transcriber(folder) as transcriber:
        assert errors(transcriber, sets()[name]) <= most


def test_the_head_that_an_entry_names_first_is_used(tmp_path: Path) -> None:
    """Not the first of the alphabet: its order is kept in a bundle."""
    spec = load_manifest().spec("spoken_digits")
    assert spec.speech is not None
    bundle._write_speech(tmp_path, SpeechParts(recipe(spec.speech), None))
    heads = list(read_recipe(tmp_path / "speech.json", ["listen", "emit"]).spoken)
    assert sorted(heads) != heads == list(spec.speech.heads)
