"""What the gates let pass: eager's count, or as many more or fewer as the slack allows."""

from __future__ import annotations

import pytest

from menagerie.validation.findings import AccuracyResult, WordErrors


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
