"""Rows of two graphs: nothing that changed is hidden, and what is alike is told once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from graph_maker import blocks, chain, graph, node, unmarked
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.report.graphs.rows import Mark, align, condense, inputs_of, mark_changes

if TYPE_CHECKING:
    from zoo.records import GraphRecord
    from zoo.report.graphs.rows import Row


def test_removed_added_and_rewired_nodes_are_told_apart() -> None:
    """A node is removed, added, or kept but fed by another node that was there before."""
    before = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c"))
    after = graph(node("a", "x"), node("b", "a"), node("new", "b"), node("d", "new", "a"))
    left, right = mark_changes(before, after)
    assert left["c"] is Mark.REMOVED
    assert right["new"] is Mark.ADDED
    assert left["a"] is right["a"] is Mark.SAME
    rewired = graph(node("a", "x"), node("b", "x"), node("c", "a"), node("d", "c"))
    assert mark_changes(before, rewired)[1]["c"] is Mark.REWIRED


def texts_of(rows: list[Row], side: str = "after") -> list[str]:
    """What stands in one column, empty where only the other has something."""
    cells = [getattr(row, side) for row in rows]
    return ["" if cell is None else cell.text for cell in cells]


def alone(record: GraphRecord, marks: dict[str, Mark], *, most: int = 120) -> list[Row]:
    """The condensed rows of a graph beside itself."""
    return condense(align(record, record, (marks, marks)), most=most)


def test_operators_follow_each_other_in_order() -> None:
    """One row an operator; each knows the rows that feed it, above it."""
    record = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c", "a"))
    rows = alone(record, unmarked(record))
    assert texts_of(rows) == ["x", "add", "add", "add", "add", "output"]
    assert inputs_of([row.after for row in rows]) == [[], [0], [1], [2], [1, 3], [4]]


def test_what_both_graphs_have_stands_in_one_row() -> None:
    """A replaced operator stands beside what took its place, by module, and nothing slips."""
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
    rows = align(before, after, mark_changes(before, after))
    assert texts_of(rows, "before") == [
        "x", "conv2d", "batch_norm", "relu", "view", "linear", "output",
    ]  # fmt: skip
    assert texts_of(rows) == ["x", "conv2d", "", "relu", "", "linear", "output"]


def test_repeated_blocks_are_told_once() -> None:
    """Of twelve equal blocks the first is drawn, and one card says how many follow."""
    record = blocks(12)
    texts = texts_of(alone(record, unmarked(record)))
    assert len(texts) < 8
    assert "11 more like it: layers.1 to 11" in texts


def test_block_that_differs_is_drawn() -> None:
    """A block with another operator is never hidden behind its neighbours."""
    record = blocks(12, odd=5)
    texts = texts_of(alone(record, unmarked(record)))
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
    texts = texts_of(alone(record, unmarked(record)))
    assert texts[3:5] == [
        "3 more like it: stages.0.block_1 to block_3",
        "2 more like it: stages.1 to 2",
    ]


def test_what_is_far_from_changes_is_told_by_module() -> None:
    """Of a graph without repetition the change and its neighbours stay, the rest by ever less."""
    before, after = chain(500), chain(500, replaced=[250])
    texts = texts_of(condense(align(before, after, mark_changes(before, after)), most=120))
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
    record = graph(*nodes)
    texts = texts_of(alone(record, {n.name: Mark.ADDED for n in record.nodes}, most=10))
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
    marks = unmarked(record) | {f"n{pick(count)}": Mark.ADDED}
    marks[f"n{cut % count}"] = Mark.WRONG
    cells = [row.after for row in alone(record, marks, most=most)]
    assert all(source < i for i, sources in enumerate(inputs_of(cells)) for source in sources)
    [wrong] = [cell for cell in cells if cell is not None and cell.mark is Mark.WRONG]
    assert not wrong.summary
