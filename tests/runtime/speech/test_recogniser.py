"""How many frames of a padded recording are real."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.speech.recipe import CtcHead, Recipe, Vocabulary
from menagerie.speech.recogniser import Program, Recogniser

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("samples", "hop", "frames"),
    [(3840, 160, 3), (3999, 160, 3), (4000, 160, 4), (3841, 1, 4), (3840, 1, 3), (320, 160, 1)],
)
def test_a_rest_shorter_than_a_frame_of_features_is_not_heard(
    samples: int, hop: int, frames: int
) -> None:
    """A frame of which no feature is real is padding, and what it says is no token."""

    def listen(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = inputs["samples"].shape[1] // 1280
        alternating = np.arange(count) % 2
        return {"logits": np.eye(3, dtype=np.float32)[alternating][None]}

    recipe = Recipe(
        rate=16_000,
        frame=1280,
        hop=hop,
        overlap=0.0,
        heads={"ctc": CtcHead(kind="ctc", listen="listen", blank=2)},
        vocabulary=Vocabulary(kind="plain", pieces=("a", "b")),
    )
    inputs = (
        TensorSpec("samples", "float32", (1, "samples")),
        TensorSpec("lengths", "int64", (1,)),
    )
    program = Program(listen, inputs, {"samples": (1280, 12_800, 1280)})
    recogniser = Recogniser(recipe, recipe.heads["ctc"], {"listen": program}, "test")
    heard = recogniser.recognise(np.zeros(samples, np.float32))
    assert [one.end for one in heard] == list(range(1, frames + 1))


def test_a_frame_is_whole_frames_of_features() -> None:
    """Else frames of the encoder would begin between features."""
    with pytest.raises(ValueError, match="no multiple of hop"):
        Recipe(
            rate=16_000,
            frame=1280,
            hop=150,
            overlap=0.0,
            heads={"ctc": CtcHead(kind="ctc", listen="listen", blank=2)},
            vocabulary=Vocabulary(kind="plain", pieces=("a", "b")),
        )
