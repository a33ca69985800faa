"""Complex tensors of a program carried as two real ones, for targets without complex numbers.

What a spectrum or a rotary embedding is made for has a form of its own here; any other operator has
the one that torch's own `ComplexTensor` writes it out in, traced and put in its place. Where one
consumer has neither, all that it is made of stays complex, with a reason.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.complex_tensor import ComplexTensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import fake_value
from transforms.graph.guards import guards_not_noted, no_new_guards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch.fx import GraphModule

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten


class Planes(NamedTuple):
    """A complex tensor as two real ones of its shape."""

    real: Node
    imag: Node


# What moves elements without looking at them does the same to each plane.
_LAYOUT = {
    aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default,
    aten.expand.default, aten.flatten.using_ints, aten.mT.default, aten.narrow.default,
    aten.permute.default, aten.reshape.default, aten.select.int, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default,
    aten.transpose.int, aten.unflatten.int, aten.unsqueeze.default, aten.view.default,
    aten._unsafe_view.default,
}  # fmt: skip
_LISTS = {
    aten.unbind.int, aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default,
}  # fmt: skip
_ARITHMETIC = {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.pow, aten.eq, aten.ne}
_VIEWS = {aten.view.default, aten._unsafe_view.default}
_CONJUGATES = {aten.conj.default, aten._conj.default, aten.conj_physical.default}
_PARTS = {aten.real.default: 0, aten.imag.default: 1}
_CASTS = {aten._to_copy.default, aten.to.dtype}
_MADE_OF_REAL = {aten.view_as_complex.default, aten.complex.default, aten.polar.default}


def is_complex(node: Node) -> bool:
    """Whether a node's value is complex, or some of its values are."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


def complex_sources(editor: ProgramEditor) -> dict[Node, Callable[[Node], Planes]]:
    """Complex constants, and numbers made complex of real ones, each with how its planes are made.

    The function is called with the insertion point before the node.
    """
    found: dict[Node, Callable[[Node], Planes]] = {}
    for node in editor.graph.nodes:
        if not node.users:
            continue
        if node.op == "placeholder" and is_complex(node) and editor.constant(node) is not None:
            found[node] = lambda node: _constant(editor, node)
        elif node.target in _CASTS and is_complex(node) and not is_complex(node.all_input_nodes[0]):
            found[node] = lambda node: _cast(editor, node)
        elif node.target in _MADE_OF_REAL and _is_of_one_shape(node):
            found[node] = lambda node: _made(editor, node)
    return found


def _constant(editor: ProgramEditor, node: Node) -> Planes:
    value = editor.constant(node)
    assert value is not None  # noqa: S101 - it is a source
    whole = value.detach().resolve_conj()
    name, learned = editor.constant_name(node), editor.is_parameter(node)
    parts = (("real", whole.real), ("imag", whole.imag))
    return Planes(
        *(editor.add_constant(f"{name}_{n}", v.clone(), learned=learned) for n, v in parts)
    )


def _made(editor: ProgramEditor, node: Node) -> Planes:
    def call(target: Any, *args: Any) -> Node:
        return editor.call(target, *args, like=node)

    if node.target is aten.view_as_complex.default:
        return Planes(*(call(aten.select.int, node.args[0], -1, place) for place in (0, 1)))
    first, second = node.args
    if node.target is aten.complex.default:
        return Planes(call(aten.clone.default, first), call(aten.clone.default, second))
    turned = (call(aten.cos.default, second), call(aten.sin.default, second))
    return Planes(*(call(aten.mul.Tensor, first, part) for part in turned))


def _cast(editor: ProgramEditor, node: Node) -> Planes:
    """Real numbers as complex ones."""
    dtype = fake_value(node).dtype.to_real()
    real = editor.call(aten._to_copy.default, node.args[0], like=node, dtype=dtype)
    return Planes(real, editor.call(aten.zeros_like.default, real, like=node))


def _is_of_one_shape(node: Node) -> bool:
    """Whether no part of a complex number is broadcast."""
    parts = [fake_value(part).shape for part in node.args]  # type: ignore[arg-type]
    return len({str(shape) for shape in parts}) == 1  # dynamic sizes have no hash


@dataclass(frozen=True)
class PlanesForm:
    """How a call's result is made of planes: why it is not, or else the node or its planes."""

    refusal: Callable[[Node], str | None]
    make: Callable[[Node, Any], Any]


class ComplexProgram:
    """Which complex numbers of a program can be carried as planes, and the rewrite that does it.

    Args:
        editor: of the program.
        sources: where complex numbers come from, each with what makes its planes.
        forms: of operators that are not known here.
    """

    def __init__(
        self,
        editor: ProgramEditor,
        sources: Mapping[Node, Callable[[Node], Planes]],
        forms: Mapping[Any, PlanesForm],
    ) -> None:
        self._editor, self._sources, self._forms = editor, dict(sources), forms
        self._traced: dict[Node, GraphModule | None] = {}
        self._planes: dict[Node, Any] = {}
        self.refused: dict[Node, str] = {}
        while reasons := self._refusals():
            self.refused |= reasons
            self._sources = {n: m for n, m in self._sources.items() if n not in reasons}

    @property
    def sources(self) -> tuple[Node, ...]:
        """Those that are carried, in the order in which they were given."""
        return tuple(self._sources)

    def _refusals(self) -> dict[Node, str]:
        carried = {n for s in self._sources for n in (s, *_consumers(s)) if is_complex(n)}
        found = {node: self._refusal(node, carried) for node in self._sources}
        return {node: reason for node, reason in found.items() if reason}

    def _refusal(self, source: Node, carried: set[Node]) -> str | None:
        """Why a source cannot be carried; every consumer is followed until numbers are real."""
        if is_written(source):
            return "its result, or a view of it, is written in place"
        reasons = (self._user_refusal(user, carried) for user in _consumers(source))
        return next((reason for reason in reasons if reason), None)

    def _user_refusal(self, user: Node, carried: set[Node]) -> str | None:
        if user.op == "output":
            return "the program returns complex numbers made of it"
        strangers = [n for n in user.all_input_nodes if is_complex(n) and n not in carried]
        if strangers:
            return f"{user.name} also takes {strangers[0].name}, which is complex"
        if user.target in self._forms:
            return self._forms[user.target].refusal(user)
        if self._has_form(user) or self._trace(user) is not None:
            return None
        return f"{user.name} ({user.target}) has no form in real and imaginary planes here"

    def _has_form(self, user: Node) -> bool:
        """Whether `_form` knows it, with these operands."""
        known = _LAYOUT | _LISTS | _CONJUGATES | set(_PARTS)
        others = {aten.abs.default, aten.view_as_real.default, aten.sym_size.int, operator.getitem}
        if user.target in known | others:
            return True
        if user.target is aten.div.Tensor:
            return not isinstance(user.args[1], complex) and not _is_complex_node(user.args[1])
        scalars = any(isinstance(a, complex) for a in user.args)
        return _is_square(user) or (user.target is aten.mul.Tensor and not scalars)

    def replace(self) -> list[Node]:
        """Rewrite all that consumes the sources. The complex nodes go with the dead code.

        Returns:
            The real results that took the place of others; their strides may differ from those.
        """
        consumers = {n for source in self._sources for n in _consumers(source)}
        fresh: list[Node] = []
        for node in list(self._editor.graph.nodes):
            if node not in self._sources and node not in consumers:
                continue
            with self._editor.graph.inserting_before(node):
                if node in self._sources:
                    self._planes[node] = self._sources[node](node)
                elif is_complex(node):
                    self._planes[node] = self._form(node)
                else:
                    fresh += self._real(node)
        return fresh

    # Complex in, complex out

    def _form(self, user: Node) -> Any:
        def call(target: Any, *args: Any, **kwargs: Any) -> Node:
            return self._editor.call(target, *args, like=user, **kwargs)

        if user.target is operator.getitem:
            several: Any = self._planes[user.args[0]]  # type: ignore[index]
            if not isinstance(several, Planes):
                return several[user.args[1]]
            return Planes(*(call(user.target, each, user.args[1]) for each in several))
        if not self._has_form(user):
            own = self._forms.get(user.target)
            whole = self._planes.get(user.all_input_nodes[0])
            return self._inlined(user) if own is None else own.make(user, whole)
        operands = [self._planes[a] for a in user.args if isinstance(a, Node) and a in self._planes]
        if user.target in _CONJUGATES:
            return Planes(operands[0].real, call(aten.neg.default, operands[0].imag))
        if _is_square(user):
            operands *= 2
        if user.target is not aten.div.Tensor and len(operands) == 2:  # noqa: PLR2004
            left, right = operands  # (a + bi)(c + di) = (ac - bd) + (ad + bc)i
            ac, bd = (call(aten.mul.Tensor, *pair) for pair in zip(*operands, strict=True))
            ad = call(aten.mul.Tensor, left.real, right.imag)
            bc = call(aten.mul.Tensor, left.imag, right.real)
            return Planes(call(aten.sub.Tensor, ac, bd), call(aten.add.Tensor, ad, bc))
        # A view's strides need not exist for a plane; reshape copies where they do not.
        target = aten.reshape.default if user.target in _VIEWS else user.target

        def on(place: int) -> Node:
            held = self._planes
            args = [held[a][place] if isinstance(a, Node) and a in held else a for a in user.args]
            return call(target, *args, **user.kwargs)

        return Planes(on(0), on(1))

    # Complex in, real out

    def _real(self, user: Node) -> list[Node]:
        """Replace a consumer that yields real numbers; return what took its place."""
        if user.target is aten.abs.default:
            return self._magnitude(user)
        planes: Any = self._planes.get(user.args[0])  # type: ignore[arg-type]
        if user.target in self._forms:
            fresh = self._forms[user.target].make(user, planes)
        elif user.target in _PARTS:
            fresh = planes[_PARTS[user.target]]
        elif user.target is aten.sym_size.int:
            fresh = self._editor.call(user.target, planes.real, user.args[1], like=user)
        elif user.target is aten.view_as_real.default:
            fresh = self._editor.call(aten.stack.default, list(planes), -1, like=user)
        elif user.target is operator.getitem:
            fresh = planes[user.args[1]]
        else:
            self._planes[user] = fresh = self._inlined(user)
            if isinstance(fresh, list):
                return []  # its users take single ones of them
        self._editor.replace(user, fresh)
        return [fresh]

    def _magnitude(self, user: Node) -> list[Node]:
        """|z| = sqrt(re^2 + im^2); where it is only squared again, no root is taken."""
        call = self._editor.call
        planes = self._planes[user.args[0]]  # type: ignore[index]
        squares = [call(aten.mul.Tensor, plane, plane, like=user) for plane in planes]
        power = call(aten.add.Tensor, *squares, like=user)
        fresh = [power]
        for square in _squares(user.users):
            self._editor.replace(square, power)
        if user.users:
            root = call(aten.sqrt.default, power, like=user)
            self._editor.replace(user, root)
            fresh.append(root)
        return fresh

    # By torch's own forms

    def _trace(self, user: Node) -> GraphModule | None:
        """What torch's `ComplexTensor` makes of a call: a graph of real tensors; None if nothing.

        Its inputs are the planes of complex operands, and all other nodes, in order.
        """
        if user not in self._traced:
            self._traced[user] = self._trace_anew(user)
        return self._traced[user]

    def _trace_anew(self, user: Node) -> GraphModule | None:
        nodes = list(user.all_input_nodes)
        values = [value for node in nodes for value in self._fakes(node)]

        def run(*given: Any) -> Any:
            left = iter(given)
            held = {
                n: ComplexTensor(next(left), next(left)) if is_complex(n) else next(left)
                for n in nodes
            }
            args, kwargs = torch.fx.node.map_arg((user.args, user.kwargs), held.__getitem__)
            if getattr(user.target, "overloadpacket", None) in _ARITHMETIC:
                args = pytree.tree_map_only((int, float, complex), _as_planes, args)
            result = user.target(*args, **kwargs)  # type: ignore[operator]
            return pytree.tree_map_only(ComplexTensor, lambda z: (z.re, z.im), result)

        try:
            mode = self._editor.fake_mode
            with mode, no_new_guards(mode), enable_python_dispatcher():
                traced = make_fx(run, tracing_mode="real")(*values)
        except Exception:  # noqa: BLE001 - torch's forms fail in many ways for what they lack
            return None
        is_whole = not any(node.op == "get_attr" for node in traced.graph.nodes)
        return traced if is_whole else None

    def _fakes(self, node: Node) -> list[Any]:
        value = node.meta["val"]
        if not is_complex(node):
            return [value]
        with self._editor.fake_mode:
            return [torch.empty(value.shape, dtype=value.dtype.to_real()) for _ in range(2)]

    def _inlined(self, user: Node) -> Any:
        """The traced graph in front of `user`: a node, planes, or a list of either."""
        traced = self._trace(user)
        assert traced is not None  # noqa: S101 - else it was refused
        nodes = user.all_input_nodes
        given = iter([p for n in nodes for p in (self._planes[n] if is_complex(n) else [n])])
        made: dict[Node, Any] = {}
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                made[node] = next(given)
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
                target = aten.reshape.default if node.target in _VIEWS else node.target
                made[node] = self._editor.call(target, *args, like=user, **kwargs)
        [results] = traced.graph.output_node().args
        mapped: Any = torch.fx.node.map_arg(results, made.__getitem__)
        if isinstance(user.meta["val"], torch.Tensor):
            return Planes(*mapped) if is_complex(user) else mapped
        return [Planes(*r) if isinstance(r, tuple | list) else r for r in mapped]


def _consumers(node: Node) -> list[Node]:
    """All that consumes `node`, or what is complex because of it, in graph order."""
    found: set[Node] = set()
    queue = [node]
    while queue:
        for user in queue.pop().users:
            if user not in found:
                found.add(user)
                if is_complex(user):
                    queue.append(user)
    return [n for n in node.graph.nodes if n in found]


def is_written(node: Node) -> bool:
    """Whether anything writes into the memory of `node`, itself or through a view."""
    # The analysis runs composite operators on fake values: it must not bind a dynamic dimension.
    with guards_not_noted(fake_value(node).fake_mode):
        return Aliasing(node.graph).is_written(node)


def _is_complex_node(value: Any) -> bool:
    return isinstance(value, Node) and is_complex(value)


def _as_planes(number: complex) -> torch.Tensor:
    return ComplexTensor(*(torch.full((), float(part)) for part in (number.real, number.imag)))


def _is_square(node: Node) -> bool:
    if node.target is aten.pow.Tensor_Scalar:
        return bool(node.args[1] == 2)  # noqa: PLR2004
    return node.target is aten.square.default


def _squares(users: Iterable[Node]) -> list[Node]:
    return [
        u
        for u in users
        if _is_square(u) or (u.target is aten.mul.Tensor and u.args[0] is u.args[1])
    ]
