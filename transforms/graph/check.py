"""The graph specification that every program must meet between two stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._export.verifier import SpecViolationError

from zoo.errors import PassError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["check_program"]

_OURS_TO_MEND = "This is a fault of the pass, not of the model"


def check_program(program: ExportedProgram, stage: str) -> None:
    """Raise PassError unless `program` is well formed.

    Checked: torch's own specification (order and names of nodes, a fake value at every call, a
    signature that fits the graph's inputs and outputs); and that every constant exists with the
    shape and dtype that its placeholder claims, which torch does not look at.

    Args:
        program: what a stage produced.
        stage: that stage's name, the place in the message.
    """
    try:
        program.graph.lint()
        program.validate()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, SpecViolationError) as error:
        raise PassError(stage, f"left a malformed graph ({error})", _OURS_TO_MEND) from error
    fault = _constant_fault(program)
    if fault:
        raise PassError(stage, fault, _OURS_TO_MEND)


def _constant_fault(program: ExportedProgram) -> str | None:
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    signature = program.graph_signature
    lifted = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    for placeholder, target in lifted.items():
        value = program.state_dict.get(target, program.constants.get(target))
        if not isinstance(value, torch.Tensor):
            return f"lost the constant {target}"
        claimed = nodes[placeholder].meta["val"]
        if tuple(claimed.shape) != tuple(value.shape) or claimed.dtype != value.dtype:
            return (
                f"claims {target} is {tuple(claimed.shape)} {claimed.dtype}, "
                f"it is {tuple(value.shape)} {value.dtype}"
            )
    return None
