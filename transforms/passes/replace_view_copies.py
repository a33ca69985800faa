"""Replace view operators that copy with the views themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import Unfit, downstream_values, evaluate
from transforms.graph.schemas import qualified_name, schema_of

aten = torch.ops.aten

_SUFFIX = "_copy"
_OTHERWISE = {"_reshape": "view", "lift_fresh": "alias"}  # views with other names
_LAZY = ("aten::_conj_copy", "aten::_neg_view_copy")


class ReplaceViewCopies(GraphPass):
    """Replaces X_copy(x) with X(x) for every view operator X, in ATen or edge dialect.

    A copy and a view hold the same numbers, but a caller that receives the view can tell them
    apart. So a copy stays, with a reason, if it is returned and the view would share memory with an
    input, a weight, a buffer or another output, or would have another layout; if strides allow no
    view, or an operator downstream cannot take the view's or relies on the copy's (`as_strided`,
    custom and random operators); or if the view would only mark its numbers as conjugated or
    negated, which generated code does not see. The strides of all later nodes are recomputed.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every copy that can be replaced.

        It takes several rounds, because one copy may block another: an operator that copies a list
        needs sizes that the view of it does not.
        """
        aliasing = editor.aliasing()
        copies = [n for n in editor.graph.nodes if _is_view_copy(n)]
        refused: dict[Node, str] = {}
        while copies:
            refused = {}
            for node in copies:
                try:
                    _replace(editor, aliasing, journal, node)
                except Unfit as fault:
                    refused[node] = str(fault)
            if len(refused) == len(copies):
                break
            copies = list(refused)
        for node, reason in refused.items():
            journal.refused(node, reason)


def _replace(editor: ProgramEditor, aliasing: Aliasing, journal: Journal, node: Node) -> None:
    """Turn one copy into a view; raise Unfit if it must stay."""
    source, copy = node.all_input_nodes[0], node.target
    if reason := next(_refusals(aliasing, node, source), None):
        raise Unfit(reason)
    node.target = _view_operator(node)
    try:
        value = evaluate(editor, node, {})
        values = downstream_values(editor, {node: value}, aliasing.returned(node))
    except Unfit:
        node.target = copy
        raise
    journal.changed(f"{node.name}: {copy} is now {node.target}")
    editor.set_values(values)
    aliasing.merge(node, source)


def _is_view_copy(node: Node) -> bool:
    """Return whether a node copies what the operator of its name without `_copy` would view."""
    name = qualified_name(node.target)
    if node.op != "call_function" or not name.startswith("aten::") or not name.endswith(_SUFFIX):
        return False
    value = node.all_input_nodes and node.all_input_nodes[0].meta.get("val")
    view = _view_operator(node)
    if view is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return any(r.alias_info and not r.alias_info.is_write for r in view._schema.returns)


def _view_operator(node: Node) -> Any:
    """Return the view operator of a copying node, which takes the same arguments, or None."""
    base = qualified_name(node.target).removeprefix("aten::").removesuffix(_SUFFIX)
    schema = schema_of(node.target)
    packet = getattr(aten, _OTHERWISE.get(base, base), None)
    return getattr(packet, (schema and schema.overload_name) or "default", None)


def _refusals(aliasing: Aliasing, node: Node, source: Node) -> Iterator[str]:
    if qualified_name(node.target) in _LAZY:
        yield "the view would only be marked as conjugated or negated"
    returned = aliasing.returned(node)
    if not returned:
        return
    names = ", ".join(n.name for n in returned)
    if aliasing.is_input(source):
        yield f"{names} is returned and would share memory with an input or a weight"
    if aliasing.returned(source):
        yield f"{names} would share memory with another output"
    if len(returned) > 1 and isinstance(node.meta["val"], (list, tuple)):
        yield f"the outputs {names} would share memory"
