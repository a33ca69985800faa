"""What `spoken_digits` learns from, and what it is measured on, have no voice in common."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from digit_espeak import utterance

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.mark.parametrize("held_out", [False, True])
def test_the_text_says_the_digits(*, held_out: bool) -> None:
    """A zero may be an oh."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        one = utterance(rng, 7, held_out=held_out)
        words = re.findall("[a-z]+", one.text)
        assert [0 if word == "oh" else _WORDS.index(word) for word in words] == [*one.digits]
        assert 1 <= len(words) <= 7


def test_held_out_voices_are_never_trained_on() -> None:
    """By name; and none of them is made by chance, as most of the training's are."""
    rng = np.random.default_rng(2)
    learnt = [utterance(rng, 1) for _ in range(3000)]
    measured = [utterance(rng, 1, held_out=True) for _ in range(3000)]
    named = {one.voice.partition("+")[2] for one in learnt if not one.made}
    others = {one.voice.partition("+")[2] for one in measured}
    assert len(named) > 60
    assert len(others) > 10
    assert not named & others
    assert not any(one.made for one in measured)
