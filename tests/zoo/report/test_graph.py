"""Lines of two graphs: nothing that changed is hidden, and what is alike is told once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.records import GraphNode, GraphRecord, NodeKind, ProgramGraphs
from zoo.report.graph import Mark, condense, graph_listing, merge
from zoo.report.page import render_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.report.graph import Line

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


def test_removed_added_and_rewired_nodes_are_told_apart() -> None:
    """A node is removed, added, or kept but fed by another node that was there before."""
    before = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c"))
    after = graph(node("a", "x"), node("b", "a"), node("new", "b"), node("d", "new", "a"))
    marks = {line.node.name: line.mark for line in merge(before, after)}
    assert marks["c"] is Mark.REMOVED
    assert marks["new"] is Mark.ADDED
    assert marks["a"] is Mark.SAME
    rewired = graph(node("a", "x"), node("b", "x"), node("c", "a"), node("d", "c"))
    marks = {line.node.name: line.mark for line in merge(before, rewired)}
    assert marks["c"] is Mark.REWIRED


def texts_of(lines: Sequence[Line]) -> list[str]:
    """What the lines say."""
    return [line.text for line in lines]


def alone(record: GraphRecord, *, most: int = 120) -> list[Line]:
    """The condensed lines of a graph that nothing changed."""
    return condense(merge(record, record), most=most)


def test_operators_follow_each_other_in_order() -> None:
    """One line an operator; each says what feeds it."""
    record = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c", "a"))
    lines = alone(record)
    assert texts_of(lines) == ["x", "add", "add", "add", "add", "output"]
    assert lines[4].node.name == "d"
    assert lines[4].tip.endswith("from c, a")


def test_what_both_graphs_have_is_one_line() -> None:
    """A replaced operator stands above what took its place, and nothing slips."""
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
    assert [f"{line.sign}{line.text}" for line in merge(before, after)] == [
        "x", "\N{MINUS SIGN}conv2d", "\N{MINUS SIGN}batch_norm", "+conv2d", "relu",
        "\N{MINUS SIGN}view", "\N{MINUS SIGN}linear", "+linear", "output",
    ]  # fmt: skip


def test_repeated_blocks_are_told_once() -> None:
    """Of twelve equal blocks the first is drawn, and one card says how many follow."""
    record = blocks(12)
    texts = texts_of(alone(record))
    assert len(texts) < 8
    assert "11 more like it: layers.1 to 11" in texts


def test_block_that_differs_is_drawn() -> None:
    """A block with another operator is never hidden behind its neighbours."""
    record = blocks(12, odd=5)
    texts = texts_of(alone(record))
    assert "mul" in texts
    assert sum("more like it" in text for text in texts) == 2


def test_blocks_within_blocks_are_told_once() -> None:
    """Of equal stages one is drawn, and of its equal layers one; numbers may have a name."""
    nodes, last = [], "x"
    for stage in range(3):
        for layer in range(4):
            module = f"stages.{stage}.block_{layer}"
            for step in range(2):
                nodes.append(node(f"a{len(nodes)}", last, module=f"{module}.{'pq'[step]}"))
                last = nodes[-1].name
    record = graph(*nodes)
    texts = texts_of(alone(record))
    assert texts[3:5] == [
        "3 more like it: stages.0.block_1 to block_3",
        "2 more like it: stages.1 to 2",
    ]


def test_what_is_far_from_changes_is_told_by_module() -> None:
    """Of a graph without repetition the change and its neighbours stay, the rest by ever less."""
    before, after = chain(500), chain(500, replaced=[250])
    texts = texts_of(condense(merge(before, after), most=120))
    assert "sub" in texts
    assert sum(text.endswith(" operators") for text in texts) == 2
    assert len(texts) < 12


def test_whole_modules_become_a_box_where_all_has_changed() -> None:
    """Where even the changes are too many, a module's card counts them."""
    nodes = []
    last = "x"
    for i in range(40):  # equal only in pairs, so that nothing repeats thrice
        for kind in ("add", "mul") if i % 4 < 2 else ("mul", "add"):
            name = f"{kind}_{i}"
            nodes.append(node(name, last, "x", operator=kind, module=f"stage.{i // 10}.{i}"))
            last = name
    lines = [replace(line, mark=Mark.ADDED, changes=1) for line in merge(*[graph(*nodes)] * 2)]
    texts = texts_of(condense(lines, most=10))
    assert texts == ["x", *(f"stage.{i}: 20 operators, 20 changed" for i in range(4)), "output"]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    count=st.integers(1, 60),
    cut=st.integers(0, 59),
    most=st.integers(1, 80),
)
def test_condensing_keeps_order_and_the_wrong_node(
    seed: int, count: int, cut: int, most: int
) -> None:
    """Producers stand before users whatever is merged, and a wrong node is drawn exactly once."""
    pick = random.Random(seed).randrange  # noqa: S311 - a graph, not a secret
    names = ["x"]
    nodes = []
    for i in range(count):
        inputs = {names[pick(len(names))] for _ in range(1 + pick(2))}
        nodes.append(node(f"n{i}", *sorted(inputs), module=f"m.{i // 4}"))
        names.append(f"n{i}")
    record = graph(*nodes)
    lines = merge(record, record)
    for place, mark in ((pick(count), Mark.ADDED), (cut % count, Mark.WRONG)):
        lines[place + 1] = replace(lines[place + 1], mark=mark, changes=1)  # behind the input
    shown = condense(lines, most=most)
    assert [n.name for line in shown for n in line.nodes] == [n.name for n in record.nodes]
    [wrong] = [line for line in shown if line.mark is Mark.WRONG]
    assert not wrong.summary


def page_of(before: GraphRecord, after: GraphRecord) -> str:
    """A page with both graphs."""
    return render_graph(ProgramGraphs(program="main", before=before, after=after), "A graph")


def test_hostile_names_are_escaped() -> None:
    """Whatever a model calls its modules stays text."""
    evil = "</td><script>alert('&\"')</script>"
    record = graph(node("a", "x", operator=evil, module=evil))
    assert "<script" not in page_of(record, record)


def test_changes_are_told_by_signs_too() -> None:
    """Not by colour alone; what did not happen is not in the legend."""
    before = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c"))
    after = graph(node("a", "x"), node("b", "a"), node("new", "b"), node("d", "new", "a"))
    listing = graph_listing(ProgramGraphs(program="main", before=before, after=after))
    assert listing.marks == (("\N{MINUS SIGN}", "removed"), ("+", "added"))
    assert listing.heading == "4 operators before the passes, 4 after them"
    [line] = [line for line in listing.lines if line.mark is Mark.REMOVED]
    assert line.sign == "\N{MINUS SIGN}"


def test_a_summary_of_several_changes_has_a_sign_of_its_own() -> None:
    """It hides no removal behind what was added, and the legend says what the sign means."""
    before, after = chain(200), chain(200, replaced=range(200))
    graphs = ProgramGraphs(program="main", before=before, after=after)
    listing = graph_listing(graphs, most_lines=20)
    assert {line.sign for line in listing.lines if line.summary} == {"\N{PLUS-MINUS SIGN}"}
    assert listing.marks == (
        ("\N{MINUS SIGN}", "removed"),
        ("+", "added"),
        ("\N{PLUS-MINUS SIGN}", "several of these"),
    )
    graphs = ProgramGraphs(program="main", before=before, after=graph(node("a0", "x")))
    listing = graph_listing(graphs, most_lines=20)
    assert {line.sign for line in listing.lines if line.summary} == {"\N{MINUS SIGN}"}
    assert listing.marks == (("\N{MINUS SIGN}", "removed"),)


def test_equal_graphs_are_shown_once() -> None:
    """Where the passes changed nothing there is one count, and nothing is marked."""
    listing = graph_listing(ProgramGraphs(program="main", before=blocks(4), after=blocks(4)))
    assert listing.heading == "8 operators"
    assert listing.marks == ()


def test_what_feeds_an_operator_from_further_above_is_said() -> None:
    """A residual sum names the trunk; a shape shows where it is another than above."""
    listing = graph_listing(ProgramGraphs(program="main", before=chain(2), after=chain(2)))
    assert [line.note for line in listing.lines] == ["1×8", "", "from x", "", "from b0", ""]  # noqa: RUF001


def test_the_wrong_node_is_pointed_out() -> None:
    """The node that diverges has a sign, in the graph after the passes."""
    graphs = ProgramGraphs(program="main", before=blocks(4), after=blocks(4, odd=2))
    listing = graph_listing(graphs, wrong="conv_1")
    [line] = [line for line in listing.lines if line.mark is Mark.WRONG]
    assert line.node.name == "conv_1"
    assert ("!", "first to diverge") in listing.marks
    assert graph_listing(graphs, wrong="no such node") == graph_listing(graphs)


def test_large_graphs_stay_light() -> None:
    """Of a thousand nodes the surroundings of the change remain; a limit of rows is kept."""
    before, after = chain(500), chain(500, replaced=[250])
    assert "<code>sub</code>" in page_of(before, after)
    assert len(page_of(before, after)) < 40_000
    everywhere = chain(500, replaced=range(0, 500, 2))
    graphs = ProgramGraphs(program="main", before=before, after=everywhere)
    assert len(graph_listing(graphs, most_lines=60).lines) <= 60
