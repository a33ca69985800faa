"""Trace plain torch code and insert it into a program: `write` computes in front of a node.

A rewrite defines its computation as a function of tensors, not node by node. Composite operators
stay whole. Values that such a function precomputes, such as the basis of a transform, are made in
an `untraced` function and stored by `constant`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_proxy_mode,
    make_fx,
    track_tensor_tree,
)
from torch.utils._python_dispatch import _disable_current_modes

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.guards import guards_not_noted, no_new_guards, torch_unheard

aten = torch.ops.aten
_VIEWS = {aten.view.default, aten._unsafe_view.default}

# Makes a function compute real numbers at once, even if it is called during tracing.
untraced = _disable_current_modes()


def constant(name: str, value: torch.Tensor) -> torch.Tensor:
    """Return, in a traced function, a tensor that the program stores as the buffer `name`."""
    proxying, mode = get_proxy_mode(), detect_fake_mode()
    assert proxying is not None and mode is not None  # noqa: S101, PT018 - inside a trace
    tracer: Any = proxying.tracer
    while hasattr(tracer.root, name):
        name += "_"
    setattr(tracer.root, name, value)
    with disable_proxy_modes_tracing():
        fake = mode.from_tensor(value, static_shapes=True)
    held = tracer.create_proxy("get_attr", name, (), {})
    found: torch.Tensor = track_tensor_tree(fake, held, constant=None, tracer=tracer)
    return found


def trace(
    editor: ProgramEditor, function: Callable[..., Any], values: Sequence[Any], *, ours: bool = True
) -> GraphModule:
    """Return the graph that plain torch code computes on fake values; its errors are passed on.

    If it is `ours`, it is correct for all sizes, whatever torch asks of dynamic ones during the
    trace, and its composite operators stay whole. Otherwise such a question is an error.
    """
    mode = editor.fake_mode
    guarded = guards_not_noted(mode) if ours else no_new_guards(mode)
    with mode, torch.no_grad(), guarded, torch_unheard(), enable_python_dispatcher():
        return make_fx(function, tracing_mode="real", pre_dispatch=ours)(*values)


def inline(
    editor: ProgramEditor,
    traced: GraphModule,
    operands: Sequence[Node],
    like: Node,
    *,
    same_strides: bool = True,
) -> Any:
    """Insert a traced graph before the node `like`, with its origin; return the graph's results.

    Views in it become copies unless operands have the layout of the trace (`same_strides`).
    """
    given, made = iter(operands), dict[Any, Any]()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            made[node] = next(given)
        elif node.op == "get_attr":
            value = getattr(traced, node.target)
            made[node] = editor.add_constant(node.target.rstrip("_"), value, learned=False)
        elif node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), made.__getitem__)
            views = not same_strides and node.target in _VIEWS
            target = aten.reshape.default if views else node.target
            made[node] = editor.call(target, *args, like=like, **kwargs)
    return torch.fx.map_arg(traced.graph.output_node().args[0], made.__getitem__)


def write(editor: ProgramEditor, function: Callable[..., Any], *operands: Any, like: Node) -> Any:
    """Compute plain torch code in front of the node `like`, whose origin it takes.

    `operands` are nodes or structures of nodes; the function receives their values, and the results
    are nodes.
    """
    nodes: dict[Node, None] = {}
    torch.fx.map_arg(operands, nodes.setdefault)

    def run(*values: Any) -> Any:
        held = dict(zip(nodes, values, strict=True))
        return function(*torch.fx.map_arg(operands, held.__getitem__))

    traced = trace(editor, run, [fake_value(node) for node in nodes])
    return inline(editor, traced, list(nodes), like)
