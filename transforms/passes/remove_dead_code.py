"""Remove calls on which no output depends."""

from __future__ import annotations

from torch.fx import Node

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import has_effect


class RemoveDeadCode(GraphPass):
    """Removes calls whose results nothing reads, and the weights that only they read.

    Assertions, calls with unknown effects and random operators are kept: without an earlier random
    operator, later ones would draw other numbers.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Remove all dead calls, then the constants that lost their last reader."""

        def is_needed(node: Node) -> bool:
            """Return whether a node without users is kept."""
            return node.op in {"placeholder", "output"} or (
                node.op == "call_function" and has_effect(node)
            )

        before = list(editor.graph.nodes)
        editor.graph.eliminate_dead_code(is_needed)
        editor.drop_unused_constants()
        for node in before:
            if node._erased:
                what = "dropped the constant" if node.op == "placeholder" else "removed"
                journal.changed(f"{what} {node.name}")
