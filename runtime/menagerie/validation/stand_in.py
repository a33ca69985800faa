"""Which golden cases are run again and again, and which once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_quick", "stand_in"]

_QUICK_SECONDS = 0.25  # run twice
_MOST_SECONDS = 1.0  # timed, and run beside a second session


def is_quick(seconds: float) -> bool:
    """Whether a case that took so long is run twice whatever it stands for."""
    return seconds <= _QUICK_SECONDS


def stand_in(elements: Sequence[int], seconds: Sequence[float]) -> int:
    """The case that stands for all: the largest of those that take a second at most.

    Where none does, it is the quickest. Of equals it is the first.

    Args:
        elements: of each case's inputs.
        seconds: that each case took, as many.
    """
    cases = range(len(seconds))
    short = [case for case in cases if seconds[case] <= _MOST_SECONDS]
    if not short:
        return min(cases, key=lambda case: seconds[case])
    return max(short, key=lambda case: elements[case])
