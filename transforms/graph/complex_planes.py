"""Carries complex tensors as two real ones, for targets without complex numbers.

The operators of spectra and rotary embeddings have forms of their own here; other operators take
those of torch's own `ComplexTensor`. Each form is plain torch code, which is traced and replaces
the call. If one consumer has no form, everything that it is made of stays complex, with a reason.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._subclasses.complex_tensor import ComplexTensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from transforms.graph.editor import ProgramEditor
from transforms.graph.guards import surely_equal
from transforms.graph.layouts import Unfit
from transforms.graph.schemas import has_effect
from transforms.graph.traced import inline, trace

aten = torch.ops.aten
_ARITHMETIC = {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.pow, aten.eq, aten.ne}


class Planes(NamedTuple):
    """A complex tensor as two real ones of its shape, or the nodes of the two."""

    real: Any
    imag: Any


# Operators that move elements without looking at them, so they do the same to each plane.
_LAYOUT = (
    aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default,
    aten.expand.default, aten.flatten.using_ints, aten.mT.default, aten.narrow.default,
    aten.permute.default, aten.reshape.default, aten.select.int, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default,
    aten.transpose.int, aten.unflatten.int, aten.unsqueeze.default, aten.view.default,
    aten._unsafe_view.default,
    aten.unbind.int, aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default,
    aten.roll.default, aten.fft_fftshift.default, aten.fft_ifftshift.default, aten.unfold.default,
)  # fmt: skip


def is_complex(node: Node) -> bool:
    """Return whether a node's value, or one of its values, is complex."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


# Computes a call from its arguments, with planes for complex ones. Returns NotImplemented for
# arguments that it leaves to torch's form, and raises `Unfit` if it knows that there is none.
Form: TypeAlias = Callable[..., Any]


def _of_each(function: Any) -> Form:
    def of_each(*args: Any, **kwargs: Any) -> Any:
        real, imag = (
            function(*(a[place] if isinstance(a, Planes) else a for a in args), **kwargs)
            for place in (0, 1)
        )
        if isinstance(real, torch.Tensor):
            return Planes(real, imag)
        return [Planes(*parts) for parts in zip(real, imag, strict=True)]

    return of_each


def _widened(z: Any) -> Planes:
    """Return the planes of a number or a real tensor that is combined with a complex one."""
    if isinstance(z, Planes):
        return z
    if isinstance(z, torch.Tensor):
        real = z if z.is_floating_point() else z.to(torch.get_default_dtype())
        return Planes(real, torch.zeros_like(real))
    return Planes(torch.full((), float(z.real)), torch.full((), float(z.imag)))


def _product(left: Any, right: Any, by: Any = operator.mul) -> Any:
    (a, b), (c, d) = _widened(left), _widened(right)  # NaN spreads even if one operand is real
    return Planes(by(a, c) - by(b, d), by(a, d) + by(b, c))


def _quotient(left: Any, right: Any) -> Any:
    if not isinstance(right, Planes | complex):
        return _of_each(torch.div)(_product(left, 1.0), right)
    (a, b), (c, d) = _widened(left), _widened(right)
    wide = c.abs() >= d.abs()  # as in eager: no square overflows, division by infinity gives 0
    large, small = torch.where(wide, c, d), torch.where(wide, d, c)
    none = (c == 0) & (d == 0)
    ratio = torch.where(none, 0.0, small / large)
    norm = torch.where(none, 0.0, large + small * ratio)
    real = torch.where(wide, a + b * ratio, a * ratio + b)
    imag = torch.where(wide, b - a * ratio, b * ratio - a)
    return Planes(torch.where(none, a, real) / norm, torch.where(none, b, imag) / norm)


def _raised(z: Any, n: Any) -> Any:
    if isinstance(n, complex) or not isinstance(z, Planes):
        return NotImplemented
    if abs(n) in {0.5, 2, 3}:  # as in eager
        whole = _root(z) if abs(n) < 1 else functools.reduce(_product, [z] * int(abs(n)))
        return whole if n > 0 else _quotient(1.0, whole)
    size, angle = torch.hypot(*z) ** n, torch.atan2(z.imag, z.real) * n
    return Planes(size * angle.cos(), size * angle.sin())


def _root(z: Planes) -> Planes:
    """Compute the larger part by a root and the other by a division, so that neither cancels."""
    a, b = z
    large = 2 * torch.sqrt(a.abs() / 8 + torch.hypot(a / 8, b / 8))  # scaled: no overflow
    small = torch.where(large == 0, 0.0, b.abs() / (2 * large))
    large, small = (torch.where(b.isinf(), torch.inf, part) for part in (large, small))
    real, imag = torch.where(a >= 0, large, small), torch.where(a >= 0, small, large)
    return Planes(real, torch.copysign(imag, b))


def _times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    sign = torch.copysign(torch.ones_like(x), x)
    return torch.where(y == 0, y * sign, x * y)  # 0 times infinity is 0


def _exponential(z: Planes) -> Planes:
    a, b = z
    size = torch.exp(a / 2)  # does not overflow where the square of it does
    wild = a.isinf() & ~b.isfinite()
    imag = _times(size, _times(size, b.sin()))
    return Planes(
        torch.where(wild, size, size * (size * b.cos())), torch.where(wild & (a < 0), 0.0, imag)
    )


def _hyperbolic_sine(a: torch.Tensor, b: torch.Tensor) -> Planes:
    wild = a.isinf() & ~b.isfinite()
    sine, cosine = (a / 2).sinh(), (a / 2).cosh()  # their products do not overflow in between
    real = torch.where(wild, torch.inf, _times(b.cos(), 2 * sine) * cosine)
    first, second = (_times(part, _times(part, b.sin())) for part in (cosine, sine))
    return Planes(real, first + second)  # not `sum`, whose initial 0 would turn -0 into +0


def _hyperbolic_cosine(a: torch.Tensor, b: torch.Tensor) -> Planes:
    wild = a.isinf() & ~b.isfinite()
    sine, cosine = (a / 2).sinh(), (a / 2).cosh()
    real = cosine * (cosine * b.cos()) + sine * (sine * b.cos())
    imag = torch.where(b == 0, _times(a, b), _times(b.sin(), 2 * sine) * cosine)
    return Planes(torch.where(wild, torch.inf, real), imag)


def _hyperbolic_tangent(a: torch.Tensor, b: torch.Tensor) -> Planes:
    wild = a.isinf() & ~b.isfinite()
    whole, rest = a.tanh(), 1 / a.cosh()
    norm = whole * whole + (b.cos() * rest) ** 2
    imag = torch.where(b == 0, b, b.sin() * b.cos() * rest * rest / norm)
    real = torch.where(wild | (a == 0), whole, whole / norm)
    return Planes(real, torch.where(wild, 0.0, imag))


def _less_one(z: Planes) -> Planes:
    a, b = z
    real = torch.expm1(a) * b.cos() - 2 * (b / 2).sin() ** 2
    return Planes(real, torch.exp(a) * b.sin())


def _sum(sign: int, left: Any, right: Any, *, alpha: Any = 1) -> Any:
    """Multiply by alpha as eager does: a complex 1 spreads a NaN to the other plane."""
    if isinstance(alpha, complex):
        return NotImplemented
    (a, b), (c, d) = _widened(left), _widened(right)
    return Planes(a + (sign * alpha * c - 0 * d), b + (sign * alpha * d + 0 * c))


def _filled(size: Any, value: Any = 0, *, dtype: Any = torch.complex64, **_: Any) -> Planes:
    parts = value.real, value.imag
    return Planes(*(torch.full(size, part, dtype=dtype.to_real()) for part in parts))


def _cast(real: Any, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Any:
    if isinstance(real, Planes) or dtype is None:
        return NotImplemented
    real = real.to(dtype.to_real())
    return Planes(real, torch.zeros_like(real))


def _joined(real: torch.Tensor, imag: torch.Tensor) -> Planes:
    if not surely_equal(real.shape, imag.shape):
        real, imag = torch.broadcast_tensors(real, imag)  # type: ignore[no-untyped-call]
    return Planes(real.clone(), imag.clone())


_FORMS: dict[Any, Form] = {
    **{layout: _of_each(layout) for layout in _LAYOUT},
    aten._to_copy.default: _cast,
    aten.to.dtype: lambda real, dtype, *_, **__: _cast(real, dtype=dtype),
    aten.view_as_complex.default: lambda pairs: Planes(pairs[..., 0], pairs[..., 1]),
    aten.complex.default: _joined,
    aten.polar.default: lambda size, angle: Planes(size * angle.cos(), size * angle.sin()),
    aten.mul.Tensor: _product,
    aten.div.Tensor: _quotient,
    aten.square.default: lambda z: _product(z, z),
    aten.pow.Tensor_Scalar: _raised,
    aten.reciprocal.default: lambda z: _quotient(1.0, z),
    aten.exp.default: _exponential,
    aten.sin.default: lambda z: Planes(*reversed(_hyperbolic_sine(z.imag, z.real))),
    aten.cos.default: lambda z: _hyperbolic_cosine(-z.imag, z.real),
    aten.sinh.default: lambda z: _hyperbolic_sine(*z),
    aten.cosh.default: lambda z: _hyperbolic_cosine(*z),
    aten.tanh.default: lambda z: _hyperbolic_tangent(*z),
    aten.tan.default: lambda z: Planes(*reversed(_hyperbolic_tangent(z.imag, z.real))),
    aten.expm1.default: _less_one,
    aten.sqrt.default: lambda z: _root(z) if isinstance(z, Planes) else NotImplemented,
    aten.add.Tensor: functools.partial(_sum, 1),
    aten.sub.Tensor: functools.partial(_sum, -1),
    aten.rsub.Scalar: lambda z, whole, alpha=1: _sum(-1, whole, z, alpha=alpha),
    **dict.fromkeys(
        (aten.conj.default, aten._conj.default, aten.conj_physical.default),
        lambda z: Planes(z.real, -z.imag),
    ),
    aten.abs.default: lambda z: torch.hypot(z.real, z.imag),  # no square overflows or underflows
    aten.real.default: lambda z: z.real,
    aten.imag.default: lambda z: z.imag,
    aten.view_as_real.default: lambda z: torch.stack([z.real, z.imag], -1),
    **dict.fromkeys(
        (aten.where.ScalarOther, aten.where.ScalarSelf),
        lambda where, *z: _of_each(torch.where)(where, *map(_widened, z)),
    ),
    aten.full.default: _filled,
    aten.zeros.default: _filled,
    aten.mean.dim: lambda *given: _product(_of_each(aten.mean.dim)(*given), 1.0),
    aten.matmul.default: lambda z, w: _product(_product(z, w, aten.matmul), 1.0),
    aten.linear.default: lambda z, w, b=0: _sum(
        1, _product(_product(z, w, aten.linear), 1), b or 0
    ),
    aten.sym_size.int: lambda z, axis: z.real.shape[axis],
}


class ComplexProgram:
    """Finds the complex numbers of a program that planes can carry, and rewrites them.

    `forms` adds operators that are not known here; their calls on real tensors are rewritten too,
    whatever they return.
    """

    def __init__(self, editor: ProgramEditor, forms: Mapping[Any, Form]) -> None:
        self._editor, self._forms = editor, {**_FORMS, **forms}
        self._traced: dict[Node, GraphModule | str] = {}
        self._planes: dict[Node, Any] = {}
        self.sources = [node for node in editor.graph.nodes if self._is_source(node, forms)]
        self.refused: dict[Node, str] = {}
        while reasons := self._refusals():
            self.refused |= reasons
            self.sources = [node for node in self.sources if node not in reasons]

    def _is_source(self, node: Node, forms: Collection[Any]) -> bool:
        """Return whether a node makes complex numbers, or is a call that is always rewritten."""
        if node.op == "placeholder":
            used = is_complex(node) and bool(node.users)
            return used and self._editor.constant(node) is not None
        if node.target not in self._forms or any(map(is_complex, node.all_input_nodes)):
            return False
        return node.target in forms or (is_complex(node) and bool(node.users))

    def _refusals(self) -> dict[Node, str]:
        carried = {n for s in self.sources for n in (s, *_consumers(s)) if is_complex(n)}
        found = {node: self._refusal(node, carried) for node in self.sources}
        return {node: reason for node, reason in found.items() if reason}

    def _refusal(self, source: Node, carried: set[Node]) -> str | None:
        """Return why a source cannot be carried, following consumers until values are real."""
        called = [source] if source.op == "call_function" else []
        reasons = (self._call_refusal(n, carried) for n in (*called, *_consumers(source)))
        return next((reason for reason in reasons if reason), None)

    def _call_refusal(self, node: Node, carried: set[Node]) -> str | None:
        if node.op == "output":
            return "the program returns complex numbers made of it"
        strangers = [n for n in node.all_input_nodes if is_complex(n) and n not in carried]
        if strangers:
            return f"{node.name} also takes {strangers[0].name}, which is complex"
        if node.target in {operator.getitem, aten._assert_tensor_metadata.default}:
            return None
        if node not in self._traced:
            self._traced[node] = self._trace(node)
        found = self._traced[node]
        return found if isinstance(found, str) else None

    def _trace(self, node: Node) -> GraphModule | str:
        """Trace a call's form, or else torch's own; if neither works, return the reason.

        Its inputs are the planes of complex operands and the values of all other nodes, in order.
        """
        nodes = node.all_input_nodes
        values = [value for n in nodes for value in self._fakes(n)]

        def run(form: Form, *given: Any) -> Any:
            left = iter(given)
            held = {
                n: Planes(next(left), next(left)) if is_complex(n) else next(left) for n in nodes
            }
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), held.__getitem__)
            found = form(*args, **kwargs)
            if found is NotImplemented:
                raise NotImplementedError
            return _untyped(found)

        try:
            form = self._forms.get(node.target, lambda *_, **__: NotImplemented)
            if _is_only_squared(node):
                form = lambda z: z.real * z.real + z.imag * z.imag  # noqa: E731
            return trace(self._editor, functools.partial(run, form), values)
        except Unfit as reason:
            return str(reason)
        except NotImplementedError:
            form = functools.partial(_as_torch_does, node.target)
        try:
            traced = trace(self._editor, functools.partial(run, form), values, ours=False)
            nodes = [n for n in traced.graph.nodes if n.op in {"get_attr", "call_function"}]
            whole = not any(n.op == "get_attr" or is_complex(n) or has_effect(n) for n in nodes)
            result = traced.graph.output_node().args[0]
            whole &= is_complex(node) <= isinstance(result, list | tuple)
        except Exception:  # noqa: BLE001 - torch's forms fail in many ways
            whole = False
        lacking = f"{node.name} ({node.target}) has no form in real and imaginary planes here"
        return traced if whole else lacking

    def _fakes(self, node: Node) -> list[Any]:
        value = node.meta["val"]
        if not is_complex(node):
            return [value]
        with self._editor.fake_mode:
            return [torch.empty(value.shape, dtype=value.dtype.to_real()) for _ in range(2)]

    def replace(self) -> list[Node]:
        """Rewrite the sources and all their consumers; the complex nodes become dead code.

        Return the real results that replaced others; their strides may differ.
        """
        rewritten = {n for source in self.sources for n in (source, *_consumers(source))}
        fresh: list[Node] = []
        for node in [n for n in self._editor.graph.nodes if n in rewritten]:
            if node.target is aten._assert_tensor_metadata.default:  # it checks a complex value
                self._editor.graph.erase_node(node)
                continue
            made = self._planes[node] = self._made(node)
            if is_complex(node) or not isinstance(made, Node):
                continue  # users of a list take its items one by one
            for each in list(node.users) if _is_only_squared(node) else [node]:
                self._editor.replace(each, made)
            fresh.append(made)
        return fresh

    def _made(self, node: Node) -> Any:
        """Return the replacement of a node: a node, its planes, or a list of either."""
        if node.op == "placeholder":
            return _constant(self._editor, node)
        if node.target is operator.getitem:
            return self._planes[node.args[0]][node.args[1]]  # type: ignore[index]
        traced, nodes = self._traced[node], node.all_input_nodes
        assert isinstance(traced, GraphModule)  # noqa: S101 - otherwise it was refused
        given = [p for n in nodes for p in (self._planes[n] if is_complex(n) else [n])]
        made = inline(self._editor, traced, given, node, same_strides=False)
        if isinstance(node.meta["val"], list | tuple):
            return [Planes(*each) if isinstance(each, list | tuple) else each for each in made]
        return Planes(*made) if is_complex(node) else made


def _constant(editor: ProgramEditor, node: Node) -> Planes:
    value = editor.constant(node)
    assert value is not None  # noqa: S101 - it is a source
    whole = value.detach().resolve_conj()
    name, learned = editor.constant_name(node), editor.is_parameter(node)
    parts = (("real", whole.real), ("imag", whole.imag))
    return Planes(
        *(editor.add_constant(f"{name}_{n}", v.clone(), learned=learned) for n, v in parts)
    )


def _untyped(found: Any) -> Any:
    if isinstance(found, list):
        return [_untyped(each) for each in found]
    return tuple(found) if isinstance(found, Planes) else found


def _as_torch_does(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the form of a call in torch's `ComplexTensor`."""

    def is_planes(value: Any) -> bool:
        return isinstance(value, Planes)

    if getattr(operator, "overloadpacket", None) in _ARITHMETIC:
        kinds = (int, float, complex, torch.Tensor)
        args = pytree.tree_map_only(kinds, _widened, args, is_leaf=is_planes)
    args, kwargs = pytree.tree_map_only(
        Planes, lambda planes: ComplexTensor(*planes), (args, kwargs), is_leaf=is_planes
    )
    result = operator(*args, **kwargs)
    return pytree.tree_map_only(ComplexTensor, lambda z: (z.re, z.im), result)


def _consumers(node: Node) -> list[Node]:
    """Return all consumers of `node` and of what is complex because of it, in graph order."""
    found: set[Node] = set()
    queue = [node] if is_complex(node) else []
    while queue:
        for user in queue.pop().users:
            if user not in found:
                found.add(user)
                if is_complex(user):
                    queue.append(user)
    return [n for n in node.graph.nodes if n in found]


def _is_only_squared(node: Node) -> bool:
    """Return whether a node is a magnitude of which only the square is used: it needs no root."""
    return (
        node.target is aten.abs.default
        and bool(node.users)
        and all(
            u.target is aten.square.default
            or (u.target is aten.pow.Tensor_Scalar and u.args[1] == 2)  # noqa: PLR2004
            or (u.target is aten.mul.Tensor and u.args[0] is u.args[1])
            for u in node.users
        )
    )
