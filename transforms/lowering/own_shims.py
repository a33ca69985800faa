"""The operators of a program that only our runtimes have a function of, and no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from menagerie.shims import load

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["own_shims"]

_NAMESPACES = ("menagerie", "torchao")


def own_shims(program: ExportedProgram, device: str) -> dict[torch._ops.OpOverload, list[str]]:
    """Each such operator with the C declaration of its function, as Inductor is told of them.

    Args:
        program: what is lowered.
        device: as names of functions have it, `cpu` or `mps`.
    """
    declarations = {shim.name: shim.declaration for shim in load()}
    found = {}
    for node in program.graph.nodes:
        operator = node.target
        if isinstance(operator, torch._ops.OpOverload) and operator.namespace in _NAMESPACES:
            name = f"aoti_torch_{device}_{operator._schema.name.partition('::')[2]}"
            if name in declarations:
                found[operator] = [declarations[name]]
    return found
