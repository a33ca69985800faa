"""A program's graph as a plain record, from which the report draws a picture."""

from __future__ import annotations

import contextlib
import operator
import re
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from transforms.graph.schemas import tensors_of
from zoo.records import GraphNode, GraphRecord, NodeKind

# Files whose lines are not the user's.
NOT_THEIRS = (
    *torch.__path__, contextlib.__file__, str(Path(__file__).parents[1]), "<string>", "<eval_with",
    str(Path(__file__).parents[2] / "zoo" / "models" / "torchvision_operators"),
)  # fmt: skip
_WORDS = {
    NodeKind.HEAVY: ("conv", "linear", "matmul", "mm", "attention", "einsum", "lstm", "gru"),
    NodeKind.NORM: ("norm",),
    NodeKind.ACTIVATION: (
        "relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "hardswish", "hardtanh", "elu",
        "glu", "mish", "softplus",
    ),
    NodeKind.LAYOUT: (
        "view", "reshape", "permute", "transpose", "slice", "select", "split", "cat", "stack",
        "squeeze", "expand", "clone", "contiguous", "getitem", "flatten", "unfold", "unbind",
        "chunk", "alias", "narrow", "roll", "pad",
    ),
}  # fmt: skip
_SOURCE_LINE = re.compile(r'File "(.+?)", line (\d+)')


def record_graph(program: ExportedProgram) -> GraphRecord:
    """Return the record of a program: inputs, operators on tensors and outputs, without weights.

    Arithmetic on sizes and the selection of one of several results are left out.
    """
    users = {str(name) for name in program.graph_signature.user_inputs}
    nodes: list[GraphNode] = []
    drawn: dict[str, str] = {}  # every node that carries data -> the drawn node that shows it
    for node in program.graph.nodes:
        before = (drawn[n.name] for n in node.all_input_nodes if n.name in drawn)
        inputs = tuple(dict.fromkeys(before))
        if node.target is operator.getitem and inputs:
            drawn[node.name] = inputs[0]
            continue
        made = _made(node, users, inputs)
        if made is not None:
            nodes.append(made)
            drawn[made.name] = made.name
    return GraphRecord(nodes=tuple(nodes))


def _made(node: Node, users: set[str], inputs: tuple[str, ...]) -> GraphNode | None:
    if node.op == "placeholder":
        if node.name not in users:
            return None
        called, detail = node.name, _detail(node)
        return GraphNode(name=called, operator=called, kind=NodeKind.INPUT, detail=detail)
    if node.op == "output":
        return GraphNode(name="output", operator="output", kind=NodeKind.OUTPUT, inputs=inputs)
    if node.op != "call_function" or not tensors_of(node):
        return None
    name = _short(node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]) if stack else ""
    return GraphNode(
        name=node.name, operator=name, kind=_kind(name), inputs=inputs, module=module,
        detail=_detail(node),
    )  # fmt: skip


def _short(target: Any) -> str:
    """Return `conv2d` for aten.conv2d.default, and `add` for a Python function of that name."""
    if hasattr(target, "_schema"):
        name = str(target._schema.name).split("::")[-1].strip("_")
        return name.removeprefix("native_").removesuffix("_legit_no_training")
    return str(getattr(target, "__name__", target))


def kind_of(node: Node) -> NodeKind:
    """Return the kind of operator that a node calls, by its name."""
    return _kind(_short(node.target))


def _kind(operator: str) -> NodeKind:
    # Norms come before heavy ones: none of their names has `linear`, but one might have `mm`.
    for kind in (NodeKind.NORM, NodeKind.LAYOUT, NodeKind.ACTIVATION, NodeKind.HEAVY):
        if any(word in operator for word in _WORDS[kind]):
            return kind
    return NodeKind.OTHER


def _detail(node: Node) -> str:
    value = node.meta.get("val")
    if value is None or not hasattr(value, "shape"):
        return ""
    sizes = "×".join(str(s) for s in value.shape)  # noqa: RUF001 - a multiplication sign
    return f"{sizes or 'scalar'} {str(value.dtype).removeprefix('torch.')}"


def origin(node: Node) -> str:
    """Return `layer1.0 (models/resnet.py:92, aten.add.Tensor)`: module, line and operator."""
    file, line = source_line(node)
    where = f"{'/'.join(Path(file).parts[-3:])}:{line}, " if file else ""
    return f"{module_path(node) or 'model'} ({where}{node.target})"


def module_path(node: Node) -> str:
    """Return the path of a node's module in the model; empty if it is unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    return next(reversed([str(entry[0]) for entry in stack.values()]), "")


def source_line(node: Node) -> tuple[str, str]:
    """Return file and line of the innermost call outside torch.nn; empty if unknown."""
    lines = [
        found
        for found in _SOURCE_LINE.findall(node.meta.get("stack_trace") or "")
        if not ("torch/nn/modules" in found[0] or found[0].startswith("<"))  # <eval_with_key>
    ]
    return lines[-1] if lines else ("", "")


def user_line(trace: str) -> str:
    """Return ` (model.py:12)` for the innermost call in the user's code; empty if there is none."""
    calls = _SOURCE_LINE.findall(trace)
    lines = [f" ({file}:{line})" for file, line in calls if not file.startswith(NOT_THEIRS)]
    return "".join(lines[-1:])
