"""Move a program to Metal's device."""

from __future__ import annotations

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal

DEVICE = "mps:0"  # with the index, since the graph's guards compare with it


class MoveToDevice(GraphPass):
    """Replaces the CPU with Metal's device in weights and calls.

    Lowering runs it as the last of all passes: its result cannot be interpreted on the CPU.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Move everything."""
        editor.move_to(DEVICE)
        journal.changed(f"moved to {DEVICE}")
