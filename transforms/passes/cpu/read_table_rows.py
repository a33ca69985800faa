"""Read rows of large constant tables by a kernel of the runtime instead of a generated loop.

A generated loop reads floats, so a table stored in a narrower type would be widened as a whole. The
runtime's kernel (`runtime/cpu/indexing.cpp`) widens only the rows that it reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments, declare

aten = torch.ops.aten

_LARGE = 1 << 18  # numbers in a table: a megabyte of float32


def _compute(table: Tensor, indices: Tensor) -> Tensor:
    return torch.nn.functional.embedding(indices, table)


declare("table_rows(Tensor table, Tensor indices) -> Tensor", _compute)


class ReadTableRows(GraphPass):
    """Replaces embeddings of large constant tables with a kernel that reads rows as stored.

    Tables of fewer than 262,144 numbers stay in generated loops, which fuse the operations after.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace each embedding of a constant float32 table."""
        for node in editor.calls(aten.embedding.default):
            given = bound_arguments(node)
            table, indices = given["weight"], given["indices"]
            value = editor.constant(table)
            if value is None or value.dtype != torch.float32 or value.numel() < _LARGE:
                continue
            if fake_value(indices).dtype not in (torch.int64, torch.int32):
                continue
            rows = editor.call(torch.ops.menagerie.table_rows.default, table, indices, like=node)
            journal.changed(f"{node.name} reads rows of {table} as they are stored")
            editor.replace(node, rows)
            rows.name = node.name
