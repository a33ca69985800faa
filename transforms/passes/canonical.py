"""Passes that export itself runs, to bring a program into a form that all other passes accept.

They see it as torch.export leaves it. A pass that would change nothing does not copy it.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import plain, same_layout
from transforms.graph.schemas import writes
from transforms.passes.lay_out_weights import let_views_copy
from zoo.records import PassRecord

aten = torch.ops.aten
TRACE = "trace_functional"
TRACED = "Replaces composite operators and writes in place with the calls that torch makes of them"
_READ_OUT = (aten.item.default, aten._local_scalar_dense.default)


class CanonicalPass(GraphPass, ABC):
    """A pass that export runs."""

    as_written: ClassVar[bool] = False  # whether it accepts calls that write

    @abstractmethod
    def applies(self, program: ExportedProgram) -> bool:
        """Return whether the pass would change the program."""

    def __call__(
        self, program: ExportedProgram, place: str = "program main"
    ) -> tuple[ExportedProgram, PassRecord]:
        """See `GraphPass`."""
        if self.applies(program):
            editor = ProgramEditor(program, place, as_written=self.as_written)
            record = self.run(editor)
            return editor.program, record
        count = len(program.graph.nodes)
        record = PassRecord(name=self.name, modified=False, nodes_before=count, nodes_after=count)
        return program, record


def run_canonical(
    place: str, program: ExportedProgram, passes: Iterable[CanonicalPass], records: list[PassRecord]
) -> ExportedProgram:
    """Run passes in order and append their records to `records`."""
    for graph_pass in passes:
        program, record = graph_pass(program, place)
        records.append(record)
    return program


def record_trace(before: int, after: int) -> PassRecord:
    """Return the record of torch's own trace, given the numbers of nodes before and after it."""
    fields = {"name": TRACE, "nodes_before": before, "nodes_after": after}
    changes = (TRACED,) if before != after else ()
    return PassRecord.model_validate(fields | {"modified": bool(changes), "changes": changes})


class TakePlainInputs(CanonicalPass):
    """Replaces inputs of other strides with row-major ones.

    If it changes any, the result is not in inference form; bringing it there retraces it.
    """

    as_written = True  # golden cases are computed with its result

    def applies(self, program: ExportedProgram) -> bool:
        """Return whether an input has other strides."""
        return bool(_made_plain(program))

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Lay out inputs and example inputs."""
        values = _made_plain(editor.program)
        editor.set_values({n: values[n.name] for n in editor.graph.nodes if n.name in values})
        let_views_copy(editor)  # the old strides may have allowed a view
        made = editor.finish()
        made.example_inputs = tree_map_only(Tensor, plain, made.example_inputs)
        journal.changed(f"inputs are row-major now: {', '.join(values)}")


def _made_plain(program: ExportedProgram) -> dict[str, Tensor]:
    """Return row-major fake values of the inputs that have another layout."""
    given = set(program.graph_signature.user_inputs)
    made = {}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.name in given and isinstance(value, FakeTensor) and value.layout is torch.strided:
            with value.fake_mode:
                fresh = torch.empty(value.shape, dtype=value.dtype)
            if not same_layout(value, fresh):
                made[node.name] = fresh
    return made


# torch's decompositions assume that each makes new memory; in eager, writes into it are seen.
_IN_TRUTH: dict[Any, Any] = {
    aten.unsafe_chunk.default: aten.chunk.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


class CallViews(CanonicalPass):
    """Replaces calls that return a view in eager with views, where something is written."""

    as_written = True

    def applies(self, program: ExportedProgram) -> bool:
        """Return whether the program has such a call and a call that writes."""
        nodes = program.graph.nodes
        views = any(n.target in {*_IN_TRUTH, aten.dropout.default} for n in nodes)
        return views and any(map(writes, nodes))

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace each call; a dropout that drops nothing becomes its input."""
        for node in editor.calls(*_IN_TRUTH):
            node.target = _IN_TRUTH[node.target]
            journal.changed(f"{node.name} is {node.target} now")
        for node in editor.calls(aten.dropout.default):
            x, share, train = node.args
            if isinstance(x, Node) and not (share and train):
                journal.changed(f"{node.name} is {x.name}")
                editor.replace(node, x)


class KeepPlainState(CanonicalPass):
    """Replaces buffers that a call writes with row-major ones, as an artifact keeps them."""

    def applies(self, program: ExportedProgram) -> bool:
        """Return whether a buffer has other strides; which buffers are written is not yet known."""
        return bool(_scattered(program))

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Lay out each buffer; the editor has refused written memory that has two names."""
        buffers = _scattered(editor.program)
        for node in editor.graph.nodes:
            if node.name in buffers and editor.constant(node) is None:
                editor.set_constant(node, plain(buffers[node.name]))
                journal.changed(f"buffer {editor.constant_name(node)} is row-major now")
        let_views_copy(editor)


def _scattered(program: ExportedProgram) -> dict[str, Tensor]:
    """Return the buffers that are not contiguous."""
    held = {**program.state_dict, **program.constants}
    buffers = {n: held[name] for n, name in program.graph_signature.inputs_to_buffers.items()}
    dense = {n: b for n, b in buffers.items() if b.layout is torch.strided}
    return {n: b for n, b in dense.items() if not b.is_contiguous()}


class LookUpTensorIndices(CanonicalPass):
    """Replaces `x[i]` of a tensor i without axes, which reads i out, with a lookup or a write.

    What is read out of `torch.tensor(x.shape[1])`, as DeBERTa slices by it, becomes a size.
    """

    def applies(self, program: ExportedProgram) -> bool:
        """Return whether a number is read out."""
        return any(node.target in _READ_OUT for node in program.graph.nodes)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace each size, each selection, and each write into one."""
        for node in editor.calls(*_READ_OUT):
            if isinstance(size := _size(editor, node.args[0], node), Node):
                editor.replace(node, size)
                journal.changed(f"{node.name} is computed of sizes")
        for node in editor.calls(*_SELECTIONS):
            operands: Any = node.args
            x, *written, axis, _ = operands
            if (index := _index_read(node)) is not None:
                indices = [None] * (axis % x.meta["val"].dim()) + [index]
                target = aten.index_put.default if written else aten.index.Tensor
                editor.replace(node, editor.call(target, x, indices, *written, like=node))
                journal.changed(f"{node.name} looks {index.name} up")


_SELECTIONS = aten.select.int, aten.select_scatter.default


def is_place(i: object) -> bool:
    """Return whether an index is a single position, held by an integer tensor."""
    return isinstance(i, Tensor) and not i.dim() and i.dtype in {torch.int32, torch.int64}


def _index_read(node: Node) -> Any:
    """Return the tensor from which a selection's index is read out; None if there is none."""
    item = node.args[-1] if node.target in _SELECTIONS else None
    if not isinstance(item, Node) or item.target not in _READ_OUT:
        return None
    index: Any = item.args[0]
    return index if is_place(index.meta["val"]) else None


_HELD = aten.scalar_tensor.default, aten.to.device, aten.to.dtype, aten.detach_.default
_ARITHMETIC = {getattr(aten, n).Tensor: getattr(operator, n) for n in ("add", "sub", "mul")}
_ARITHMETIC[aten.rsub.Scalar] = operator.sub


def _size(editor: ProgramEditor, value: Any, like: Node) -> Any:
    """Return the number in a tensor that sizes made, as a node; a number; None for all else."""
    known = value.meta.get("val") if isinstance(value, Node) else value
    if isinstance(known, (int, torch.SymInt)):
        return value
    if getattr(known, "dtype", None) != torch.int64 or "alpha" in value.kwargs:
        return None
    if value.target in _HELD:
        return _size(editor, value.args[0], like)
    run = _ARITHMETIC.get(value.target)
    operands = [_size(editor, each, like) for each in value.args[:2]] if run else [None]
    operands = operands[::-1] if value.target is aten.rsub.Scalar else operands
    return None if None in operands else editor.call(run, *operands, like=like)


class RoundToHalves(CanonicalPass):
    """Replaces numbers that meet tensors of float16 or bfloat16 with the nearest of that dtype.

    Eager does so for Python numbers, tensors without axes and integer tensors. Generated code would
    use the exact value: 0.7 is not the float16 nearest to it. Eager's kernels also use the exact
    value of factors and divisors without axes (`original_scalar_value` of
    aten/src/ATen/native/cpu/BinaryOpsKernel.cpp): if they are tensors, only the result is rounded.
    The bits are reinterpreted, since Inductor removes a cast that is followed by its inverse.
    """

    def applies(self, program: ExportedProgram) -> bool:
        """Return whether the program has such a number."""
        return any(_unrounded(node) or _by_whole(node) for node in program.graph.nodes)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Round each such number."""
        for node in editor.calls(*_ROUNDED):
            dtype = _half_of(node)
            if _by_whole(node):
                cast = partial(editor.call, aten._to_copy.default, like=node)
                wide: Any = cast(node.args[0], dtype=torch.float32)
                whole = editor.call(node.target, wide, node.args[1], like=node)
                editor.replace(node, cast(whole, dtype=dtype))
                journal.changed(f"{node.name} takes a number as it is")
                continue
            for place in _unrounded(node):
                value: Any = node.args[place]
                if isinstance(value, Node):
                    half = editor.call(aten._to_copy.default, value, dtype=dtype, like=node)
                    bits = editor.call(aten.view.dtype, half, torch.int16, like=node)
                    same = editor.call(aten.bitwise_and.Scalar, bits, -1, like=node)
                    value = editor.call(aten.view.dtype, same, dtype, like=node)
                else:
                    value = torch.tensor(value, dtype=dtype).item()
                node.update_arg(place, value)
                journal.changed(f"{node.name} takes a number in {dtype}")


_HALVES = (torch.float16, torch.bfloat16)
_FACTORS = [aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar]
_ROUNDED = [
    *_FACTORS, aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar,
    aten.rsub.Tensor, aten.rsub.Scalar, aten.fmod.Tensor, aten.fmod.Scalar, aten.remainder.Tensor,
    aten.remainder.Scalar, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar,
    aten.gt.Tensor, aten.gt.Scalar, aten.ge.Tensor, aten.ge.Scalar, aten.lt.Tensor, aten.lt.Scalar,
    aten.le.Tensor, aten.le.Scalar, aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar,
    aten.maximum.default, aten.minimum.default, aten.fmax.default, aten.fmin.default,
    aten.where.self, aten.atan2.default, aten.hypot.default, aten.logaddexp.default,
    aten.xlogy.Tensor, aten.clamp.default, aten.clamp.Tensor,
]  # fmt: skip


def _numbers(node: Node) -> dict[int, Tensor]:
    """Return the arguments that are tensors of numbers, by position."""
    values = {i: a.meta["val"] for i, a in enumerate(node.args) if isinstance(a, Node)}
    return {i: t for i, t in values.items() if isinstance(t, Tensor) and t.dtype != torch.bool}


def _half_of(node: Node) -> torch.dtype | None:
    """Return the dtype of a call's float tensors that have axes, if it is float16 or bfloat16."""
    tensors = _numbers(node).values()
    floats = {t.dtype for t in tensors if t.dim() and t.is_floating_point()}
    return floats.pop() if len(floats) == 1 and floats.issubset(_HALVES) else None


def _by_whole(node: Node) -> bool:
    """Return whether halves are multiplied or divided by a tensor without axes of another dtype."""
    factor = _numbers(node).get(1) if node.target in _FACTORS and _half_of(node) else None
    return factor is not None and not factor.dim() and factor.dtype not in _HALVES


def _unrounded(node: Node) -> list[int]:
    """Return the positions of arguments that eager rounds to halves."""
    if node.target not in _ROUNDED or (dtype := _half_of(node)) is None:
        return []
    whole = {1} if node.target in _FACTORS else set()
    others = {i: t for i, t in _numbers(node).items() if t.dtype != dtype}
    places = [i for i, t in others.items() if t.dim() or i not in whole]
    for i, value in enumerate(node.args):
        if isinstance(value, float) and i not in whole and math.isfinite(value):
            rounded = torch.tensor(value, dtype=dtype).item()
            if rounded != value and math.isfinite(rounded):
                places.append(i)
    return places
