"""The graph picture: well-formed, accessible, complete where it must be, and never overlapping."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms import run_passes
from zoo.report.graphs.boxes import Mark, condense, mark_changes
from zoo.report.graphs.drawing import picture
from zoo.report.graphs.layout import lay_out
from zoo.evidence import GraphNode, GraphRecord, NodeKind, record_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE = "1×8 float32"  # noqa: RUF001 - a multiplication sign
SVG = "{http://www.w3.org/2000/svg}"


def _node(name: str, *inputs: str, operator: str = "add", module: str = "") -> GraphNode:
    return GraphNode(name, operator, NodeKind.OTHER, inputs, module, SHAPE)


def _graph(*nodes: GraphNode) -> GraphRecord:
    source = GraphNode("x", "x", NodeKind.INPUT, detail=SHAPE)
    sink = GraphNode("output", "output", NodeKind.OUTPUT, (nodes[-1].name,))
    return GraphRecord((source, *nodes, sink))


def _same(record: GraphRecord) -> dict[str, Mark]:
    return {n.name: Mark.SAME for n in record.nodes}


def _texts(svg: str) -> list[str]:
    return ["".join(e.itertext()) for e in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


def _blocks(count: int, *, odd: int = -1) -> GraphRecord:
    """`count` equal residual blocks, but for one operator of block `odd`."""
    nodes, last = [], "x"
    for i in range(count):
        inner = _node(f"conv_{i}", last, operator="conv2d", module=f"layers.{i}.conv")
        name = f"mul_{i}" if i == odd else f"add_{i}"
        outer = _node(
            name, inner.name, last, operator=name.split("_", maxsplit=1)[0], module=f"layers.{i}"
        )
        nodes += [inner, outer]
        last = outer.name
    return _graph(*nodes)


def test_picture_is_well_formed_and_described() -> None:
    """One SVG element with a role, a title and a description, without scripts or references."""
    record = _graph(_node("a", "x"), _node("b", "a"))
    svg = picture(record, record, title="Graph of a model")
    root = ET.fromstring(svg)  # noqa: S314
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert [root[0].tag, root[0].text] == [f"{SVG}title", "Graph of a model"]
    assert root[1].tag == f"{SVG}desc"
    assert "2 operators" in (root[1].text or "")
    assert "<script" not in svg
    assert "href" not in svg
    assert "url(" not in svg


def test_hostile_names_are_escaped() -> None:
    """Whatever a model calls its modules stays text."""
    evil = "</text><script>alert('&\"')</script>"
    record = _graph(_node("a", "x", operator=evil, module=evil))
    svg = picture(record, record, title=evil)
    assert "<script" not in svg
    assert any(evil in text for text in _texts(svg))


def test_same_graphs_have_no_marks() -> None:
    """Nothing stands out where nothing changed."""
    record = _blocks(4)
    assert set(mark_changes(record, record)[0].values()) == {Mark.SAME}
    root = ET.fromstring(picture(record, record))  # noqa: S314
    assert not [e for e in root.iter(f"{SVG}rect") if (e.get("class") or "").endswith("-row")]


def test_removed_added_and_rewired_nodes_are_told_apart() -> None:
    """A node is removed, added, or kept but fed by another node that was there before."""
    before = _graph(_node("a", "x"), _node("b", "a"), _node("c", "b"), _node("d", "c"))
    after = _graph(_node("a", "x"), _node("b", "a"), _node("new", "b"), _node("d", "new", "a"))
    left, right = mark_changes(before, after)
    assert left["c"] is Mark.REMOVED
    assert right["new"] is Mark.ADDED
    assert left["a"] is right["a"] is Mark.SAME
    rewired = _graph(_node("a", "x"), _node("b", "x"), _node("c", "a"), _node("d", "c"))
    assert mark_changes(before, rewired)[1]["c"] is Mark.REWIRED
    svg = picture(before, after)
    assert {"−", "+"} <= set(_texts(svg))  # noqa: RUF001 - told by a sign, not by colour alone


def test_straight_chain_shares_a_box() -> None:
    """Operators in a row are rows of one box; a branch begins new ones."""
    record = _graph(_node("a", "x"), _node("b", "a"), _node("c", "b"), _node("d", "c", "a"))
    boxes = condense(record, _same(record))
    assert [[row.text for row in box.rows] for box in boxes] == [
        ["x"],
        ["add"],
        ["add", "add"],
        ["add"],
        ["output"],
    ]


def test_repeated_blocks_are_told_once() -> None:
    """Of twelve equal blocks the first is drawn, and one card says how many follow."""
    record = _blocks(12)
    boxes = condense(record, _same(record))
    assert len(boxes) < 8
    assert any("11 more like it: layers.1 to 11" in row.text for box in boxes for row in box.rows)


def test_block_that_differs_is_drawn() -> None:
    """A block with another operator is never hidden behind its neighbours."""
    record = _blocks(12, odd=5)
    texts = [row.text for box in condense(record, _same(record)) for row in box.rows]
    assert "mul" in texts
    assert sum("more like it" in text for text in texts) == 2


def test_changed_node_is_always_drawn_however_large_the_graph() -> None:
    """Of a thousand nodes the surroundings of the change remain, and the count of the rest."""
    nodes, last = [], "x"
    for i in range(500):  # modules without numbers: nothing repeats
        nodes += [_node(f"a{i}", last), _node(f"b{i}", f"a{i}", last)]
        last = f"b{i}"
    before = _graph(*nodes)
    changed = [
        _node("b250", "a250", "b249", operator="sub") if n.name == "b250" else n for n in nodes
    ]
    svg = picture(before, _graph(*changed))
    texts = _texts(svg)
    assert "sub" in texts
    assert any(text.endswith(" operators") and "⋯" in text for text in texts)
    assert len(svg) < 40_000


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


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 60), cut=st.integers(0, 59))
def test_every_node_is_in_exactly_one_box(seed: int, count: int, cut: int) -> None:
    """Condensing keeps producers before users, whatever the graph and the marks."""
    generator = torch.Generator().manual_seed(seed)

    def pick(limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=generator))

    names = ["x"]
    nodes = []
    for i in range(count):
        inputs = {names[pick(len(names))] for _ in range(1 + pick(2))}
        nodes.append(_node(f"n{i}", *sorted(inputs), module=f"m.{i // 4}"))
        names.append(f"n{i}")
    record = _graph(*nodes)
    marks = _same(record) | {f"n{cut % count}": Mark.REMOVED}
    boxes = condense(record, marks)
    assert all(source < index for index, box in enumerate(boxes) for source in box.inputs)
    assert sum(row.mark is Mark.REMOVED for box in boxes for row in box.rows) == 1


def test_picture_is_the_same_every_time() -> None:
    """Equal graphs give equal bytes, so that reports can be compared."""
    record, other = _blocks(5), _blocks(5, odd=2)
    assert picture(record, other) == picture(record, other)


class _ConvNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.split(torch.relu(self.norm(self.conv(x))), 2, dim=1)
        return left * right


def _record_of_conv_norm() -> tuple[GraphRecord, GraphRecord]:
    module = _ConvNorm().eval()
    program = torch.export.export(module, (torch.randn(1, 3, 6, 6),), strict=False)
    program = program.run_decompositions({})
    folded, _ = run_passes(program, ["fold_batch_norm"])
    return record_graph(program), record_graph(folded)


def test_record_has_inputs_operators_and_output_but_no_weights() -> None:
    """Weights and the picking of one of several results are not drawn; modules are named."""
    before, after = _record_of_conv_norm()
    assert [n.operator for n in before.nodes] == [
        "x",
        "conv2d",
        "batch_norm",
        "relu",
        "split",
        "mul",
        "output",
    ]
    assert [n.operator for n in after.nodes] == ["x", "conv2d", "relu", "split", "mul", "output"]
    conv = before.nodes[1]
    assert (conv.module, conv.kind, conv.detail) == ("conv", NodeKind.HEAVY, "1×4×4×4 float32")  # noqa: RUF001
    known: set[str] = set()
    for node in before.nodes:
        assert known.issuperset(node.inputs)
        known.add(node.name)


def test_picture_of_a_real_pass_marks_the_fold() -> None:
    """The folded convolution is new on the right, the normalisation is gone on the left."""
    before, after = _record_of_conv_norm()
    left, right = mark_changes(before, after)
    assert [n.operator for n in before.nodes if left[n.name] is Mark.REMOVED] == [
        "conv2d",
        "batch_norm",
    ]
    assert [n.operator for n in after.nodes if right[n.name] is Mark.ADDED] == ["conv2d"]


def _positions(texts: Sequence[str], word: str) -> list[int]:
    return [i for i, text in enumerate(texts) if text == word]


def test_both_panels_are_headed() -> None:
    """Before stands left of after."""
    before, after = _record_of_conv_norm()
    texts = _texts(picture(before, after))
    assert _positions(texts, "Before")[0] < _positions(texts, "After")[0]
