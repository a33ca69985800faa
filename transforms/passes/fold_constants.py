"""Compute at compile time every value that depends on weights alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import Unfit, downstream_values
from transforms.graph.schemas import (
    call_with,
    is_functional,
    is_quantisation,
    producers,
    qualified_name,
    schema_of,
    tensors_of,
)

_MOST_SCRATCH = 1 << 30  # bytes of one intermediate value while folding


class _Folding(NamedTuple):
    """A call on constants whose result the run needs, and what folding it removes."""

    node: Node
    cone: set[Node]  # the calls that compute it, including itself
    freed: set[Node]  # the constants that nothing else reads


class FoldConstants(GraphPass):
    """Replaces f(constants) with the constant it computes.

    Folded are functional calls with a weight, buffer or lifted tensor beneath them; a mere `full`
    or `arange(9)` costs less to make than to read, but devices round the fractions of `linspace`,
    windows and `arange(0, 1, 0.1)` in ways of their own. Views of constants stay. Results are
    computed by eager PyTorch and stored contiguous; together they exceed what they replace by at
    most `max_growth` bytes.

    Refuses beyond that bound; if a result is returned, since the caller would hold the program's
    own constant; if a node downstream relies on strides that the stored constant does not have; and
    for dequantised weights, which would take four bytes instead of one.
    """

    def __init__(self, max_growth: int = 1 << 20) -> None:
        self._max_growth = max_growth

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Fold from the last call to the first: if one is refused, try the calls that it reads."""
        aliasing = editor.aliasing()
        known = _known(editor, aliasing)
        room = self._max_growth
        for node in reversed(list(known)):
            if not known[node] or not _is_wanted(node, known):
                continue
            folding = _folding(editor, node, known)
            growth = _bytes(node) - sum(map(_bytes, folding.freed))
            try:
                _check(aliasing, folding, growth, room)
                _store(editor, folding, _compute(editor, folding))
            except Unfit as fault:
                journal.refused(node, str(fault))
                del known[node]
                continue
            room -= max(growth, 0)
            journal.changed(f"folded {node.name}, {len(folding.cone)} calls")


def _known(editor: ProgramEditor, aliasing: Aliasing) -> dict[Node, bool]:
    """Return the calls computable now: True if storable, False for views and constructors."""
    known: dict[Node, bool] = {}
    for node in editor.graph.nodes:
        if not is_functional(node) or is_quantisation(node.target):
            continue
        inputs = node.all_input_nodes
        if any(n not in known and editor.constant(n) is None for n in inputs):
            continue
        if schema_of(node.target) is None and not any(n in known for n in inputs):
            continue  # arithmetic on sizes
        fresh = not any(aliasing.share(node, n) for n in inputs)
        made = fresh and (bool(inputs) or _has_fractions(node))
        known[node] = made and isinstance(node.meta.get("val"), torch.Tensor)
    return known


def _has_fractions(node: Node) -> bool:
    """Return whether a call makes a range of numbers that must be rounded."""
    name = qualified_name(node.target)
    given = [n for n in node.args if isinstance(n, (int, float))]
    is_whole = name == "aten::arange" and all(n == round(n) for n in given)
    rounded = name in {"aten::arange", "aten::linspace", "aten::logspace"} and not is_whole
    return rounded or name.endswith("_window")


def _is_wanted(node: Node, known: dict[Node, bool]) -> bool:
    """Return whether the program reads the value at run time, even through a view or a list."""
    for user in node.users:
        if user not in known:
            return True
        if not known[user] and _is_wanted(user, known):
            return True
    return False


def _folding(editor: ProgramEditor, node: Node, known: dict[Node, bool]) -> _Folding:
    cone = {node, *(n for n in producers(node) if n in known)}
    gone = {node}
    for current in reversed(list(editor.graph.nodes)):
        if current in cone and current is not node and gone.issuperset(current.users):
            gone.add(current)
    constants = {n for c in cone for n in c.all_input_nodes if n.op == "placeholder"}
    return _Folding(node, cone, {n for n in constants if gone.issuperset(n.users)})


def _check(aliasing: Aliasing, folding: _Folding, growth: int, room: int) -> None:
    """Raise Unfit if the result must not or should not become a constant."""
    node = folding.node
    if aliasing.returned(node):
        raise Unfit("it is returned: the caller would hold the program's own constant")
    if growth > room:
        raise Unfit(f"the artifact would grow by {growth} bytes, allowed are {room}")
    largest = max(folding.cone, key=_bytes)
    if _bytes(largest) > _MOST_SCRATCH:
        raise Unfit(f"{largest.name} takes {_bytes(largest)} bytes on the way")


def _bytes(node: Node) -> int:
    return sum(t.numel() * t.element_size() for t in tensors_of(node))


def _compute(editor: ProgramEditor, folding: _Folding) -> torch.Tensor:
    values: dict[Node, Any] = {}

    def value(node: Node) -> Any:
        constant = editor.constant(node)
        return values[node] if constant is None else constant.detach()

    with torch.no_grad():
        for node in editor.graph.nodes:
            if node in folding.cone:
                values[node] = call_with(node, value)
    return values[folding.node]  # type: ignore[no-any-return]


def _store(editor: ProgramEditor, folding: _Folding, value: torch.Tensor) -> None:
    """Store the value as a constant and make every user of the node read it."""
    node = folding.node
    value = value.contiguous()
    claimed = node.meta["val"]
    if value.shape != claimed.shape or value.dtype is not claimed.dtype:
        raise Unfit(f"it computes to {tuple(value.shape)} {value.dtype}")
    with editor.fake_mode:
        fake = editor.fake_mode.from_tensor(value, static_shapes=True)
    changed = downstream_values(editor, {node: fake})
    sources = {n for inner in folding.cone for n in inner.all_input_nodes if n.op == "placeholder"}
    learned = any(editor.is_parameter(n) for n in sources)
    editor.replace(node, editor.add_constant(f"{node.name}_folded", value, learned=learned))
    editor.set_values(changed)
    for spent in reversed(list(editor.graph.nodes)):
        if spent in folding.cone and not spent.users:
            editor.graph.erase_node(spent)
