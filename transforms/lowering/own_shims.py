"""The operators of a program that only Metal's runtime has a function of, and no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from menagerie.shims import load

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["own_shims"]

_NAMESPACES = ("menagerie", "torchao")


def own_shims(program: ExportedProgram) -> dict[torch._ops.OpOverload, list[str]]:
    """Each such operator with the C declaration of its function, as Inductor is told of them."""
    declarations = {shim.name: shim.declaration for shim in load()}
    found = {}
    for node in program.graph.nodes:
        operator = node.target
        if isinstance(operator, torch._ops.OpOverload) and operator.namespace in _NAMESPACES:
            name = f"aoti_torch_mps_{operator._schema.name.partition('::')[2]}"
            if name in declarations:
                found[operator] = [declarations[name]]
    return found
