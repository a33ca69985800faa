"""What `spoken_digits` learns from, and what it is measured on, have no voice in common."""

from __future__ import annotations

import re

import numpy as np
import pytest

from zoo.models.spoken_digits.speakers import utterance

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
    assert 0.6 < sum(bool(one.made) for one in learnt) / len(learnt) < 0.8
    accents = [{one.voice.partition("+")[0] for one in some} for some in (learnt, measured)]
    assert len(accents[1] - accents[0]) == 1


def test_a_made_voice_is_like_no_other() -> None:
    """A variant each, whose formants lie where those of a short or a long throat do."""
    rng = np.random.default_rng(3)
    made = [one.made for one in (utterance(rng, 1) for _ in range(300)) if one.made]
    assert len(set(made)) == len(made)
    for text in made:
        lines = [line.split() for line in text.splitlines()]
        assert lines[0] == ["language", "variant"]
        places = [int(line[2]) for line in lines if line[0] == "formant"]
        assert len(places) == 9  # espeak-ng's 0 to 8
        assert 70 * 0.85 < np.exp(np.mean(np.log(places))) < 150 * 1.2
