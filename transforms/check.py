"""The graph specification that every program must meet between two stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from zoo.errors import PassError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["check_program"]


def check_program(program: ExportedProgram, stage: str) -> None:
    """Raise PassError unless `program` is well formed.

    Checked: fx's own lint (order, ownership, names); placeholders stand in the signature's order;
    every constant exists with the shape and dtype its placeholder claims; every call has a fake
    value; outputs are those the signature names.

    Args:
        program: what a stage produced.
        stage: that stage's name, the place in the message.
    """
    try:
        program.graph.lint()
    except (RuntimeError, AssertionError) as error:
        raise PassError(stage, f"left a malformed graph ({error})") from error
    for fault in (
        _placeholder_fault(program) or _constant_fault(program) or _value_fault(program),
        _output_fault(program),
    ):
        if fault:
            raise PassError(stage, fault, "This is a fault of the pass, not of the model")


def _placeholder_fault(program: ExportedProgram) -> str | None:
    names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    promised = [spec.arg.name for spec in program.graph_signature.input_specs]
    return None if names == promised else "left placeholders that its signature does not list"


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


def _value_fault(program: ExportedProgram) -> str | None:
    bare: list[Node] = [
        n for n in program.graph.nodes if n.op == "call_function" and "val" not in n.meta
    ]
    return f"left {bare[0].name} without a fake value" if bare else None


def _output_fault(program: ExportedProgram) -> str | None:
    output = next(n for n in reversed(program.graph.nodes) if n.op == "output")
    names = [getattr(a, "name", None) for a in output.args[0]]
    promised = [getattr(s.arg, "name", None) for s in program.graph_signature.output_specs]
    return None if names == promised else "returns other outputs than its signature names"
