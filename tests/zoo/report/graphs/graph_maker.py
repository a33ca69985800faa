"""Hand-made graph records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.records import GraphNode, GraphRecord, NodeKind
from zoo.report.graphs.rows import Mark

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def unmarked(record: GraphRecord) -> dict[str, Mark]:
    """No node has changed."""
    return {n.name: Mark.SAME for n in record.nodes}


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
