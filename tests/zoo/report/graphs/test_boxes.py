"""Condensed graphs: nothing that changed is hidden, and what is alike is told once."""

from __future__ import annotations

import random

from graph_maker import blocks, chain, graph, node, unmarked
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.report.graphs.boxes import Mark, condense, mark_changes


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


def test_straight_chain_shares_a_box() -> None:
    """Operators in a row are rows of one box; a branch begins new ones."""
    record = graph(node("a", "x"), node("b", "a"), node("c", "b"), node("d", "c", "a"))
    boxes = condense(record, unmarked(record))
    assert [[row.text for row in box.rows] for box in boxes] == [
        ["x"],
        ["add"],
        ["add", "add"],
        ["add"],
        ["output"],
    ]


def test_repeated_blocks_are_told_once() -> None:
    """Of twelve equal blocks the first is drawn, and one card says how many follow."""
    record = blocks(12)
    boxes = condense(record, unmarked(record))
    assert len(boxes) < 8
    assert any("11 more like it: layers.1 to 11" in row.text for box in boxes for row in box.rows)


def test_block_that_differs_is_drawn() -> None:
    """A block with another operator is never hidden behind its neighbours."""
    record = blocks(12, odd=5)
    texts = [row.text for box in condense(record, unmarked(record)) for row in box.rows]
    assert "mul" in texts
    assert sum("more like it" in text for text in texts) == 2


def test_what_is_far_from_changes_is_told_by_module() -> None:
    """Of a graph without repetition the change and its neighbours stay, the rest by ever less."""
    before, after = chain(500), chain(500, replaced=[250])
    marks = mark_changes(before, after)[1]
    texts = [row.text for box in condense(after, marks) for row in box.rows]
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
    boxes = condense(record, {n.name: Mark.ADDED for n in record.nodes}, most=10)
    texts = [row.text for box in boxes for row in box.rows]
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
    boxes = condense(record, marks, most=most)
    assert all(source < index for index, box in enumerate(boxes) for source in box.inputs)
    [wrong] = [row for box in boxes for row in box.rows if row.mark is Mark.WRONG]
    assert not wrong.summary
