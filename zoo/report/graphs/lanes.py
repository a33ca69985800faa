"""Lanes beside a column of operators, for edges that reach further than the next one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Lane", "lay_lanes"]


@dataclass(frozen=True)
class Lane:
    """All edges from one operator to those that are not next to it, by their rows."""

    source: int
    users: tuple[int, ...]
    number: int = 0  # the distance from the column

    @property
    def length(self) -> int:
        """How many rows it passes."""
        return self.users[-1] - self.source

    def overlaps(self, other: Lane) -> bool:
        """Whether it runs beside another; where one ends the other may begin."""
        return self.source < other.users[-1] and other.source < self.users[-1]


def lay_lanes(there: Sequence[int], inputs: Sequence[Sequence[int]]) -> list[Lane]:
    """Short lanes lie near the column, and none on another.

    Args:
        there: the rows that hold an operator.
        inputs: for each row those that feed it, all above it.
    """
    following = dict(pairwise(there))
    distant: dict[int, list[int]] = {}
    for user, sources in enumerate(inputs):
        for source in sources:
            if following[source] != user:
                distant.setdefault(source, []).append(user)
    placed: list[Lane] = []
    wanted = [Lane(source, tuple(users)) for source, users in distant.items()]
    for lane in sorted(wanted, key=lambda lane: (lane.length, lane.source)):
        taken = {other.number for other in placed if lane.overlaps(other)}
        free = next(n for n in range(len(taken) + 1) if n not in taken)
        placed.append(Lane(lane.source, lane.users, free))
    return placed
