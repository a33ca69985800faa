"""Removes what no output depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.graph.aliasing import writes_of
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import has_effect, is_random, schema_of

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor


class RemoveDeadCode(GraphPass):
    """Removes calls whose results nothing reads, and the weights that only they read.

    A write in place is dead when the memory is the program's own and no live node reads it. Kept
    are assertions, calls with effects unknown, and random operators, without which those after
    them would draw other numbers.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Remove all dead calls, then the constants that lost their last reader."""
        aliasing = editor.aliasing()

        def is_needed(node: Node) -> bool:
            """Whether a node without users stays; dead ones behind it are gone already."""
            if node.op in {"placeholder", "output"}:
                return True
            if node.op == "get_attr" or not has_effect(node):
                return False
            written = writes_of(node)
            if not written or schema_of(node.target) is None or is_random(node):
                return True
            nodes = list(node.graph.nodes)
            behind = nodes[nodes.index(node) + 1 :]
            read = {source for later in behind for source in later.all_input_nodes}
            return any(
                aliasing.is_input(w) or any(aliasing.share(w, r) for r in read) for w in written
            )

        before = list(editor.graph.nodes)
        editor.graph.eliminate_dead_code(is_needed)
        editor.drop_unused_constants()
        for node in before:
            if node._erased:
                what = "dropped the constant" if node.op == "placeholder" else "removed"
                journal.changed(f"{what} {node.name}")
