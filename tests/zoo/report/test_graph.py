"""Lines of two graphs: nothing is left out, and what is alike is folded."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.records import GraphNode, GraphRecord, NodeKind, ProgramGraphs
from zoo.report.graph import Mark, graph_listing, merge
from zoo.report.page import render_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.report.graph import Block, Line

SHAPE = "1×8 float32"  # noqa: RUF001 - a multiplication sign


def node(name: str, *inputs: str, operator: str = "add", module: str = "") -> GraphNode:
    """An operator on a small tensor."""
    return GraphNode(
        name=name,
        operator=operator,
        kind=NodeKind.OTHER,
        inputs=inputs,
        module=module,
        detail=SHAPE,
    )


def graph(*nodes: GraphNode) -> GraphRecord:
    """Nodes between an input `x` and an output that takes the last of them."""
    source = GraphNode(name="x", operator="x", kind=NodeKind.INPUT, detail=SHAPE)
    sink = GraphNode(
        name="output", operator="output", kind=NodeKind.OUTPUT, inputs=(nodes[-1].name,)
    )
    return GraphRecord(nodes=(source, *nodes, sink))


def blocks(count: int, *, odd: int = -1) -> GraphRecord:
    """`count` equal residual blocks, but for one operator of block `odd`."""
    nodes: list[GraphNode] = []
    last = "x"
    for i in range(count):
        inner = node(f"conv_{i}", last, operator="conv2d", module=f"layers.{i}.conv")
        operator = "mul" if i == odd else "add"
        outer = node(f"{operator}_{i}", inner.name, last, operator=operator, module=f"layers.{i}")
        nodes += [inner, outer]
        last = outer.name
    return graph(*nodes)


def chain(count: int, *, replaced: Sequence[int] = ()) -> GraphRecord:
    """Residual pairs without modules, so that none repeats; `replaced` ones subtract."""
    nodes: list[GraphNode] = []
    last = "x"
    for i in range(count):
        operator = "sub" if i in replaced else "add"
        nodes += [node(f"a{i}", last), node(f"b{i}", f"a{i}", last, operator=operator)]
        last = f"b{i}"
    return graph(*nodes)


BEFORE = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c"))
AFTER = graph(node("a", "x"), node("b", "a"), node("new", "b"), node("d", "new", "a"))


def test_removed_added_and_rewired_nodes_are_distinguished() -> None:
    """A node is removed, added, or kept but fed by another node that was there before."""
    marks = {line.node.name: line.mark for line in merge(BEFORE, AFTER)}
    assert marks["c"] is Mark.REMOVED
    assert marks["new"] is Mark.ADDED
    assert marks["a"] is Mark.SAME
    rewired = graph(node("a", "x"), node("b", "x"), node("c", "a"), node("d", "c"))
    marks = {line.node.name: line.mark for line in merge(BEFORE, rewired)}
    assert marks["c"] is Mark.REWIRED


def of(before: GraphRecord, after: GraphRecord | None = None) -> ProgramGraphs:
    """Both graphs of a program; left out: nothing changed."""
    return ProgramGraphs(program="main", before=before, after=after or before)


def blocks_of(graphs: ProgramGraphs) -> list[tuple[str, bool]]:
    """The blocks of a listing that have a name, and whether they are folded."""
    return [(b.module, b.folded) for b in graph_listing(graphs).blocks if b.module]


def lines_of(blocks: Sequence[Block]) -> list[Line]:
    """All lines, folded ones too."""
    return [line for block in blocks for line in block.lines]


def test_operators_follow_each_other_in_order() -> None:
    """One line an operator; each says what feeds it."""
    record = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c", "a"))
    lines = lines_of(graph_listing(of(record)).blocks)
    assert [line.node.operator for line in lines] == ["x", "add", "add", "add", "add", "output"]
    assert lines[4].node.name == "d"
    assert lines[4].tip.endswith("from c, a")


def test_what_both_graphs_have_is_one_line() -> None:
    """A replaced operator is above what took its place, and nothing slips."""
    before = graph(
        node("conv", "x", operator="conv2d", module="stem.conv"),
        node("norm", "conv", operator="batch_norm", module="stem.norm"),
        node("relu", "norm", operator="relu", module="stem"),
        node("view", "relu", operator="view"),
        node("linear", "view", operator="linear", module="head"),
    )
    after = graph(
        node("folded", "x", operator="conv2d", module="stem.conv"),
        node("relu", "folded", operator="relu", module="stem"),
        node("linear_1", "relu", operator="linear", module="head"),
    )
    assert [f"{line.sign}{line.node.operator}" for line in merge(before, after)] == [
        "x", "\N{MINUS SIGN}conv2d", "\N{MINUS SIGN}batch_norm", "+conv2d", "relu",
        "\N{MINUS SIGN}view", "\N{MINUS SIGN}linear", "+linear", "output",
    ]  # fmt: skip


def test_what_is_like_the_block_above_is_folded() -> None:
    """Of twelve equal blocks the first is open, and each of the others says what it is like."""
    listing = graph_listing(of(blocks(12)))
    assert blocks_of(of(blocks(12))) == [(f"layers.{i}", i > 0) for i in range(12)]
    assert {block.heading for block in listing.blocks if block.folded} == {
        "2 operators, as the block above"
    }


def test_block_that_differs_is_open() -> None:
    """A block with another operator, or one changed otherwise, is not hidden by its neighbours."""
    opened = [name for name, folded in blocks_of(of(blocks(12, odd=5))) if not folded]
    assert opened == ["layers.0", "layers.5", "layers.6"]
    opened = [name for name, folded in blocks_of(of(blocks(12), blocks(12, odd=5))) if not folded]
    assert {"layers.0", "layers.5"} <= {*opened}


def test_layers_of_stages_are_blocks() -> None:
    """Down to the second number of a path, which may have a name."""
    nodes, last = [], "x"
    for stage in range(3):
        for layer in range(4):
            module = f"stages.{stage}.block_{layer}"
            for step in range(2):
                nodes.append(node(f"a{len(nodes)}", last, module=f"{module}.{'pq'[step]}"))
                last = nodes[-1].name
    named = [name for name, _ in blocks_of(of(graph(*nodes)))]
    assert named == [f"stages.{stage}.block_{layer}" for stage in range(3) for layer in range(4)]


@pytest.mark.parametrize("pairs", [100, 500])
def test_of_a_large_graph_what_nothing_changed_is_folded(pairs: int) -> None:
    """Blocks of a small one are open; inputs, outputs and changes are never folded."""
    nodes, last = [], "x"
    for i in range(pairs):
        for kind in ("add", "mul") if i % 20 < 10 else ("mul", "add"):
            nodes.append(node(f"{kind}_{i}", last, operator=kind, module=f"stage.{i // 15}.sum"))
            last = nodes[-1].name
    before, after = graph(*nodes), graph(*nodes[:-40], node("new", nodes[-41].name), *nodes[-39:])
    listing = graph_listing(of(before, after))
    folded = lines_of([block for block in listing.blocks if block.folded])
    assert len(folded) > 900 if pairs > 100 else not folded
    assert {line.mark for line in folded} <= {Mark.SAME}
    assert {"x", "output"}.isdisjoint(line.node.name for line in folded)
    assert lines_of(listing.blocks)[0].node.name == "x"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 400), wrong=st.integers(0, 399))
def test_every_node_is_there_in_order_and_the_wrong_one_is_open(
    seed: int, count: int, wrong: int
) -> None:
    """Whatever is folded."""
    pick = random.Random(seed).randrange  # noqa: S311 - a graph, not a secret
    names, nodes = ["x"], []
    for i in range(count):
        inputs = {names[pick(len(names))] for _ in range(1 + pick(2))}
        nodes.append(node(f"n{i}", *sorted(inputs), module=f"m.{i // 4}"))
        names.append(f"n{i}")
    record, name = graph(*nodes), f"n{wrong % count}"
    listing = graph_listing(of(record), wrong=name)
    assert [line.node.name for line in lines_of(listing.blocks)] == [n.name for n in record.nodes]
    opened = lines_of([block for block in listing.blocks if not block.folded])
    assert [line.node.name for line in opened if line.mark is Mark.WRONG] == [name]


def page_of(before: GraphRecord, after: GraphRecord) -> str:
    """A page with both graphs."""
    return render_graph(of(before, after), "A graph")


def test_hostile_names_are_escaped() -> None:
    """Whatever a model calls its modules stays text."""
    evil = "</td><script>alert('&\"')</script>"
    record = graph(node("a", "x", operator=evil, module=evil))
    assert "<script" not in page_of(record, record)


def test_changes_are_shown_by_signs_too() -> None:
    """Not by colour alone; what did not happen is not in the legend."""
    listing = graph_listing(of(BEFORE, AFTER))
    assert listing.marks == (("\N{MINUS SIGN}", "removed"), ("+", "added"))
    assert listing.heading == "4 operators before the passes, 4 after them"
    [line] = [line for line in lines_of(listing.blocks) if line.mark is Mark.REMOVED]
    assert line.sign == "\N{MINUS SIGN}"


def test_equal_graphs_are_shown_once() -> None:
    """Where the passes changed nothing there is one count, and nothing is marked."""
    listing = graph_listing(of(blocks(4)))
    assert listing.heading == "8 operators"
    assert listing.marks == ()


def test_what_feeds_an_operator_from_further_above_is_said() -> None:
    """A residual sum names the trunk; a shape shows where it is another than above."""
    lines = lines_of(graph_listing(of(chain(2))).blocks)
    assert [line.note for line in lines] == ["1×8", "", "from x", "", "from b0", ""]  # noqa: RUF001


def test_the_wrong_node_is_pointed_out() -> None:
    """The node that diverges has a sign, in the graph after the passes."""
    graphs = of(blocks(4), blocks(4, odd=2))
    listing = graph_listing(graphs, wrong="conv_1")
    [block] = [b for b in listing.blocks if any(line.mark is Mark.WRONG for line in b.lines)]
    assert (block.module, block.folded) == ("layers.1", False)
    assert [line.mark for line in block.lines if line.node.name == "conv_1"] == [Mark.WRONG]
    assert ("!", "first to diverge") in listing.marks
    assert graph_listing(graphs, wrong="no such node") == graph_listing(graphs)


def test_large_graphs_stay_light() -> None:
    """A line of a thousand takes no more than a line of text."""
    before, after = chain(500), chain(500, replaced=[250])
    assert "<code>sub</code>" in page_of(before, after)
    assert len(page_of(before, after)) < 250 * 1000
