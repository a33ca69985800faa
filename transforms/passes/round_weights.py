"""Round weights to integers of eight or four bits, or to a type of half the bytes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Node

from transforms.graph.callable import WRAPPER_PREFIX
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import CONVOLUTIONS
from transforms.passes.axes import is_layout
from transforms.passes.quantisation import INTEGERS, quantised, scheme_of, with_second_names
from zoo.errors import UsageError
from zoo.precision import Precision, WeightPrecision, is_called

aten = torch.ops.aten

_FEWEST_COLUMNS = 16  # with fewer, a row's scale costs too much
_FEWEST_OF_WINDOW = 32  # depthwise kernels have nine; 3 x 3 over three channels gains nothing

_PRODUCTS = frozenset({
    *CONVOLUTIONS, aten.linear.default, aten.addmm.default, aten.mm.default, aten.bmm.default,
    aten.baddbmm.default, aten.matmul.default, aten.embedding.default,
})  # fmt: skip
_LEAST_AXES = 2


def may_quantise(value: torch.Tensor) -> bool:
    """Return whether a weight is float32 with rows of at least 16 numbers, 32 for windows."""
    columns = value.shape[1:].numel()
    is_window = columns != value.shape[1:2].numel()
    long_enough = columns >= (_FEWEST_OF_WINDOW if is_window else _FEWEST_COLUMNS)
    return value.dtype is torch.float32 and value.numel() > 0 and long_enough


class QuantiseWeights(GraphPass):
    """Replaces the weights of products and tables with integers times a scale, in float32.

    The graph still computes in float32: the bundle stores the integers and scales, in 0.26 or 0.15
    of the bytes. Products of weight-only precisions read the integers themselves. With `int8` and
    `int8-static` the CPU rounds the other operand too, and multiplies integers. See
    `transforms.passes.quantisation` for the rounding.

    Parameters of linear layers, products, convolutions and embeddings are rounded if a row of their
    first axis has at least 16 numbers, or 32 if a row is a convolution's window. Depthwise kernels
    and a first convolution of 3 x 3 over three channels stay: with `int8` the latter saves no time
    and loses 0.6 dB in MobileNetV2.

    Args:
        precision: `int8`, `int8-static`, `int8-weight-only` or `int4-weight-only`.
        keep: parameters that stay, separated by spaces: their names, or prefixes of these up to a
            dot or an underscore, such as a layer's name.
        group: how many integers of a row share a scale; by default the precision's usual number.
    """

    def __init__(
        self, precision: str = Precision.INT8_WEIGHT_ONLY, keep: str = "", group: int | None = None
    ) -> None:
        if precision not in INTEGERS:
            fact = f"cannot keep weights in {precision!r}"
            raise UsageError(f"pass {self.name}", fact, f"Known: {', '.join(INTEGERS)}")
        if group is not None and not (group > 0 and Precision(precision).has_groups):
            fact = f"{precision} has no groups of {group}"
            raise UsageError(f"pass {self.name}", fact, "Leave `group` out")
        self._kept = WeightPrecision(Precision(precision), tuple(keep.split()), group)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Round every weight that can be rounded."""
        scheme = scheme_of(self._kept) or INTEGERS[self._kept.precision]
        rounded, kept, names = 0, set[str](), list[str]()
        nodes = editor.graph.find_nodes(op="placeholder")
        left = [editor.constant_name(n) for n in nodes if editor.constant(n) is not None]
        keep = with_second_names(self._kept.keep, editor.first_state, left)
        for node in editor.graph.nodes:
            value = editor.constant(node)
            if value is None or not editor.is_parameter(node):
                continue
            names.append(editor.constant_name(node).removeprefix(WRAPPER_PREFIX))
            layers = {n for n in keep if is_called(editor.constant_name(node), n)}
            if layers:
                kept |= layers
                continue
            if not may_quantise(value):
                continue
            if not any(user.target in _PRODUCTS for user in _readers(node)):
                continue
            found = quantised(value, scheme)
            if found is None:
                journal.refused(node, "has NaN or infinite numbers")
                continue
            editor.set_constant(node, found.wide())
            rounded += 1
        if unknown := sorted(set(keep) - kept):
            fact = f"is to keep {unknown[0]!r}, which names no parameter of the program"
            raise UsageError(f"pass {self.name}", fact, f"Such are: {', '.join(names[:4])}")
        if rounded:
            kept_in = self._kept.precision
            how = "integers" if kept_in.multiplies_integers else "float32"
            journal.changed(f"rounded {rounded} weights to {kept_in}, to compute in {how}")


def _readers(node: Node) -> Iterator[Node]:
    """Yield a constant's users, and the users behind operators that only rearrange it."""
    for user in node.users:
        yield from _readers(user) if is_layout(user) else (user,)


def may_narrow(value: torch.Tensor) -> bool:
    """Return whether a constant is a float32 weight with two or more axes, no bias or statistic."""
    return value.dtype is torch.float32 and value.dim() >= _LEAST_AXES


class NarrowWeights(GraphPass):
    """Replaces weights of float32 with the nearest numbers of float16 or bfloat16.

    The graph still computes in float32: the bundle stores such a weight in the narrow type. The
    CPU's products widen a part at a time, Metal's runtime widens all of it on load. So the file
    shrinks to half, and products and sums lose nothing to the narrow type.

    Constants of at least two axes are rounded; biases, gains and statistics are small and stay. A
    weight is refused if float16 cannot hold it: if its numbers are too large, or so small that the
    rounding's norm exceeds the half unit that a normal number may lose.
    """

    def __init__(self, dtype: str = "float16") -> None:
        known = [Precision.FLOAT16.value, Precision.BFLOAT16.value]
        if dtype not in known:
            fact = f"cannot keep weights in {dtype!r}"
            raise UsageError(f"pass {self.name}", fact, f"Known: {', '.join(known)}")
        self._dtype: torch.dtype = getattr(torch, dtype)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Round every weight that can be rounded."""
        rounded = 0
        for node in editor.graph.nodes:
            value = editor.constant(node)
            if value is None or not may_narrow(value):
                continue
            wide = value.to(self._dtype).to(value.dtype)
            reason = _refusal(value, wide, self._dtype)
            if reason:
                journal.refused(node, reason)
                continue
            editor.set_constant(node, wide)
            rounded += 1
        if rounded:
            journal.changed(f"rounded {rounded} weights to {self._dtype}, to compute in float32")


def _refusal(exact: torch.Tensor, wide: torch.Tensor, dtype: torch.dtype) -> str:
    """Return why a weight must not be rounded; empty if it may be."""
    finite = torch.isfinite(exact)
    if not torch.equal(finite, torch.isfinite(wide)):
        return f"has numbers up to {exact[finite].abs().max():.3g}, which {dtype} does not hold"
    error = (wide - exact)[finite].double().norm()
    if error > torch.finfo(dtype).eps / 2 * exact[finite].double().norm():
        return f"has numbers too small for {dtype} to keep their digits"
    return ""
