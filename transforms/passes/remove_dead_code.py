"""Removes what no output depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.graph.aliasing import writes_of
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import has_effect, is_random, schema_of

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from transforms.graph.aliasing import Aliasing
    from transforms.graph.editor import ProgramEditor


class RemoveDeadCode(GraphPass):
    """Removes calls whose results nothing reads, and the weights that only they read.

    A write in place is dead when the memory is the program's own and no live node reads it. Kept
    are assertions, calls with effects unknown, and random operators, without which those after
    them would draw other numbers.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Remove all dead calls, then the constants that lost their last reader."""
        live = _live(editor.graph, editor.aliasing())
        for node in reversed(list(editor.graph.nodes)):
            if node not in live and node.op in {"call_function", "get_attr"}:
                editor.graph.erase_node(node)
                journal.changed(f"removed {node.name}")
        before = [n.name for n in editor.graph.nodes if n.op == "placeholder"]
        editor.drop_unused_constants()
        kept = {n.name for n in editor.graph.nodes}
        for name in before:
            if name not in kept:
                journal.changed(f"dropped the constant {name}")


def _live(graph: Graph, aliasing: Aliasing) -> set[Node]:
    """Every node that an output or an effect depends on: one sweep from the end to the start."""
    live: set[Node] = set()
    read: list[Node] = []  # one node of each memory that a live node reads

    def keeps(node: Node) -> bool:
        if node.op in {"placeholder", "output"} or node in live:
            return True
        if node.op == "get_attr" or not has_effect(node):
            return False
        written = writes_of(node)
        if not written or schema_of(node.target) is None or is_random(node):
            return True
        return any(aliasing.is_input(w) or any(aliasing.share(w, r) for r in read) for w in written)

    for node in reversed(graph.nodes):
        if keeps(node):
            live.add(node)
            for source in node.all_input_nodes:
                live.add(source)
                if not any(aliasing.share(source, r) for r in read):
                    read.append(source)
    return live
