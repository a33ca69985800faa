"""Lanes lie apart, and edges run down."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.report.graphs.lanes import lay_lanes


@st.composite
def _columns(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    rows = draw(st.integers(1, 14))
    there = sorted(draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    inputs: list[list[int]] = [[] for _ in range(rows)]
    for i, row in enumerate(there[1:], 1):
        inputs[row] = sorted(draw(st.sets(st.sampled_from(there[:i]), max_size=3)))
    return there, inputs


@settings(max_examples=60, deadline=None)
@given(column=_columns())
def test_lanes_never_overlap_and_edges_run_down(column: tuple[list[int], list[list[int]]]) -> None:
    """Every edge to another than the next operator has a lane, to which no other comes near."""
    there, inputs = column
    lanes = lay_lanes(there, inputs)
    following = dict(pairwise(there))
    edges = {(source, user) for user, sources in enumerate(inputs) for source in sources}
    drawn = [(lane.source, user) for lane in lanes for user in lane.users]
    assert sorted(drawn) == sorted(e for e in edges if following[e[0]] != e[1])
    for i, lane in enumerate(lanes):
        assert list(lane.users) == sorted(lane.users)
        assert lane.source < lane.users[0]
        for other in lanes[i + 1 :]:
            apart = lane.users[-1] <= other.source or other.users[-1] <= lane.source
            assert apart or lane.number != other.number


def test_edges_of_one_source_run_together() -> None:
    """A source that many later operators use takes one lane, not one for each."""
    count = 20
    inputs = [[], *([i - 1, 0] if i > 1 else [0] for i in range(1, count))]
    [lane] = lay_lanes(range(count), inputs)
    assert lane.users == tuple(range(2, count))
    assert lane.number == 0


def test_short_edges_lie_inside_long_ones() -> None:
    """So that they cross nothing on their way."""
    inputs = [[], [0], [1], [2, 1], [3, 0]]
    numbers = {(lane.source, lane.users): lane.number for lane in lay_lanes(range(5), inputs)}
    assert numbers == {(1, (3,)): 0, (0, (4,)): 1}
