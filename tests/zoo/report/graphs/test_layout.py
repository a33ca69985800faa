"""Boxes lie apart, and edges run down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.report.graphs.layout import lay_out


@st.composite
def _dags(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[list[int]]]:
    count = draw(st.integers(1, 14))
    sizes = [
        (draw(st.integers(20, 200)) * 1.0, draw(st.integers(20, 90)) * 1.0) for _ in range(count)
    ]
    inputs = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)
    ]
    return sizes, inputs


@settings(max_examples=60, deadline=None)
@given(graph=_dags())
def test_boxes_never_overlap_and_edges_run_down(
    graph: tuple[list[tuple[float, float]], list[list[int]]],
) -> None:
    """In any graph boxes lie apart, within the picture, and every edge descends to its user."""
    sizes, inputs = graph
    layout = lay_out(sizes, inputs)
    for i, a in enumerate(layout.places):
        assert a.x >= -1e-6
        assert a.y >= -1e-6
        assert a.x + a.width <= layout.width + 1e-6
        assert a.y + a.height <= layout.height + 1e-6
        for b in layout.places[i + 1 :]:
            apart_x = a.x + a.width <= b.x + 1e-6 or b.x + b.width <= a.x + 1e-6
            apart_y = a.y + a.height <= b.y + 1e-6 or b.y + b.height <= a.y + 1e-6
            assert apart_x or apart_y
    assert set(layout.edges) == {(s, u) for u, sources in enumerate(inputs) for s in sources}
    for points in layout.edges.values():
        heights = [y for _, y in points]
        assert heights == sorted(heights)


def test_edges_of_one_source_run_together() -> None:
    """A source that many later boxes use takes one lane through the layers, not one for each."""
    count = 20
    inputs = [[], *([i - 1, 0] if i > 1 else [0] for i in range(1, count))]
    layout = lay_out([(100.0, 30.0)] * count, inputs)
    assert layout.width < 250
