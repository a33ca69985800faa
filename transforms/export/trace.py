"""torch.export of a model's programs, with their named dynamic dimensions."""

from __future__ import annotations

import ast
import functools
import keyword
import math
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._dynamo.exc import UserError
from torch._higher_order_ops.associative_scan import associative_scan, generic_associative_scan
from torch._higher_order_ops.flex_attention import FlexAttentionHOP
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.export import Dim, ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ConstantArgument
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.utils._pytree import tree_leaves, tree_map_only, tree_structure

from transforms.export.refusals import refuse_unsupported
from transforms.graph.aliasing import functional
from transforms.graph.call_signature import is_plain, named_tensors, output_names, state_of
from transforms.graph.editor import ProgramEditor
from transforms.graph.guards import any_length, is_number_cached, plain_words, torch_unheard
from transforms.graph.layouts import plain
from transforms.graph.record import NOT_THEIRS, origin
from transforms.graph.schemas import declare
from transforms.passes.canonical import (
    CallViews,
    KeepPlainState,
    LookUpTensorIndices,
    RoundToHalves,
    is_place,
    record_trace,
    run_canonical,
)
from transforms.passes.decompose_stft import SignalsOfAnyLength
from transforms.passes.drop_assertions import DropAssertions, naming_lines
from zoo.errors import ExportError, MenagerieError
from zoo.records import PassRecord
from zoo.spec import ProgramSpec

_MATRIX = 2
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
# torch warns so for every recurrent layer too; `python_state` has checked whether it matters.
_ASSIGNED = r"The tensor attributes? (.|\n)* assigned during export"
_CAUSES = re.compile(r"Caused by: .*?([\w./-]+\.py):(\d+) in ")
_LINES = re.compile(r'File "(.+?)", line (\d+)')
_BEFORE = CallViews(), KeepPlainState(), LookUpTensorIndices()
_SPECIALISED = re.compile(r"marked (?:(\d+)\*)?\w+ as dynamic but .*? constant \((\d+)\)")
_ONE = (
    "Where the example has 1 there, or k of k * Dim, give another size: torch takes these for fixed"
)
_FIXED = (
    "No other size goes through, since the model fixes it: leave that axis out. Where an input of "
    "fixed size fixes it, give that the same Dim. Where int(), math.sqrt or torch.linspace fixes "
    "it, write math.floor(n * 0.7), n**0.5, torch.arange(n) / (n - 1)"
)
_VIEWING = {int, slice, type(None), type(...), torch.SymInt}
TRY_ALONE = "Try the model under torch.export by itself; arguments of forward can switch paths"


def packed_linear(A: Tensor, B: Tensor, group_size: int, S: Tensor, Z: Tensor) -> Tensor:  # noqa: N803
    """Return A times a transposed weight of S q + Z, (M, N) of A's dtype, summed in float32.

    A is (M, K), floating; B is (N, K / 2), uint8: two numbers q from 0 to 15 per byte, the first in
    the lower half; S is (N, K / group_size), the scales; Z is added to each scaled number: minus
    the whole number that means zero, times the scale. `group_size` divides K.
    """
    numbers = torch.stack((B & 15, B >> 4), -1).flatten(1).float()
    scales, offsets = (t.float().repeat_interleave(group_size, 1) for t in (S, Z))
    return (A.float() @ (numbers * scales + offsets).t()).to(A.dtype)


# torchao's experimental quantisation for Metal makes a linear layer this operator (pytorch/ao,
# torchao/experimental: quant_api.py, kernels/mps/src/packing.h), by a library for Macs only, which
# is imported first if present. We declare what it lacks; only Metal's runtime implements it.
declare(
    "_linear_fp_act_4bit_weight(Tensor A, Tensor B, int group_size, Tensor S, Tensor Z) -> Tensor",
    packed_linear,
    namespace="torchao",
)

aten = torch.ops.aten


# torch's own code reads values to decide on a warning; a traced tensor has no values.
@aten.cov.default.py_impl(_COMPOSITE)
def covariance(
    self: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Return the covariances of rows, with each observation weighted (torch.cov)."""
    rows = self if self.dim() == _MATRIX else self.reshape(1, -1)
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = math.prod(given, start=rows.new_ones(rows.shape[1], dtype=torch.int64))
    total = weights.sum()
    if given:
        fits = torch.stack([(each >= 0).all() for each in given]).all() & (total != 0)
        aten._assert_async.msg(fits, "cov: a weight is negative, or their sum is zero")
    lost = correction if aweights is None else correction * (weights * aweights).sum() / total
    rows = rows - ((rows * weights).sum(1) / total)[:, None]
    return (rows @ (rows * weights).t() / (total - lost).clamp(min=0)).squeeze()


@aten.corrcoef.default.py_impl(_COMPOSITE)
def correlation(self: Tensor) -> Tensor:
    """Return the correlations of rows (torch.corrcoef)."""
    found = covariance(self)
    if not found.dim():
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation[:, None] / deviation).clip(-1, 1)


# torch's own function without gradients reads the length as a number, which fixes a dynamic one.
@aten.max_pool1d.default.py_impl(_COMPOSITE)
def largest_of_windows(self: Tensor, *window: Any, **how: Any) -> Tensor:
    """Return the maximum of each window of a signal (torch.max_pool1d)."""
    largest: Tensor = aten.max_pool1d_with_indices.default(self, *window, **how)[0]
    return largest


# torch's decompositions read a reduction's number as its name; its kernels know the number.
for _loss in (aten.hinge_embedding_loss, aten.margin_ranking_loss, aten.nll_loss):
    decomposition_table.pop(_loss.default, None)


def trace(
    place: str,
    module: torch.nn.Module | ExportedProgram,
    arguments: tuple[Any, ...] = (),
    keywords: Mapping[str, Any] | None = None,
    shapes: Any = None,
    *,
    records: list[PassRecord] | None = None,
) -> ExportedProgram:
    """Return a module as a graph in inference form: functional, composite operators kept.

    Code is generated for an example's strides, and a tensor given twice would be one input. So each
    is copied into the layout that artifacts take: row-major, in its own memory. Nested tensors
    become inputs of their own; constants do not. A program that is already exported is only brought
    into this form. Records of export's passes are appended to `records`. Raise ExportError if
    tracing fails, finds a dimension's range too wide, or the program needs what no target has.
    """
    made = [] if records is None else records
    if found := _unwritable(module):
        fact = f"has {found[0]}, and torch writes graphs as Python, {found[1]}"
        raise ExportError(place, fact, "Rename the module or tensor")
    try:
        with torch.no_grad(), any_length(), is_number_cached():
            if isinstance(module, ExportedProgram):
                program = _decomposed(place, flat(module), made)
            else:
                given, named = tree_map_only(Tensor, plain, (arguments, dict(keywords or {})))
                program = _exported(place, module, given, named, shapes, records=made)
    except MenagerieError:
        raise
    except Exception as error:  # torch raises many types; all mean the same to the user
        raise _failed(place, error, module) from error
    own = None if isinstance(module, ExportedProgram) else module
    refuse_unsupported(place, program, own)
    return with_own_state(program)


def _exported(
    place: str, module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any],
    shapes: Any, *, records: list[PassRecord],
) -> ExportedProgram:  # fmt: skip
    """Export; if torch doubts that all sizes take the same path, defer that check and try each."""

    def export(**how: Any) -> ExportedProgram:
        with (
            assigned_in_place(module),
            patch.object(Tensor, "__setitem__", _write_view),
            torch_unheard(),
            SignalsOfAnyLength(),
            patch(f"{associative_scan.__module__}.generic_associative_scan", _scan_of_any_length),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", _ASSIGNED)
            return torch.export.export(
                module, arguments, keywords, dynamic_shapes=shapes, strict=False, **how
            )

    try:
        return _decomposed(place, flat(export()), records)
    except UserError as doubt:
        if not shapes:
            raise
        try:
            with naming_lines():
                exported = export(prefer_deferred_runtime_asserts_over_guards=True)
        except Exception:  # noqa: BLE001 (torch raises many types, and the first error was clearer)
            raise doubt from None
        records.clear()
        return _decomposed(place, flat(exported), records, deferred=True)


def _scan_of_any_length(operator: Any, leaves: Any, **how: Any) -> Any:
    """Scan axis 0 by distances of 1, 2, 4, ...; torch's own halving fixes all sizes."""
    if all(isinstance(size, int) for x in leaves for size in x.shape):
        return generic_associative_scan(operator, leaves, **how)  # type: ignore[no-untyped-call]
    for step in (1 << n for n in range(31)):
        if statically_known_true(leaves[0].shape[0] <= step):
            break
        made = tree_leaves(operator(*(x.roll(step, 0) for x in leaves), *leaves))
        masks = [(torch.arange(x.shape[0]) < step).view(-1, *[1] * (x.dim() - 1)) for x in made]
        leaves = list(map(torch.where, masks, leaves, made))
    return leaves


_write = Tensor.__setitem__


def _write_view(x: Tensor, index: Any, value: Any) -> None:
    """Write x[index] = value; torch.export supports tensor and size indices only for reads."""
    places = index if isinstance(index, tuple) else (index,)
    if all(type(i) in _VIEWING or is_place(i) for i in places):
        x, index = x[index], ...
    _write(x, index, value)


def _apart(result: Tensor) -> Tensor:
    """Return a copy of a view at a tensor's position: torch returns no view of written memory."""
    return result.clone() if free_unbacked_symbols(result.storage_offset()) else result


@contextmanager
def assigned_in_place(module: torch.nn.Module) -> Iterator[None]:
    """Copy what forward assigns to a buffer into that buffer when forward ends.

    Also remove None from its result (`named_tensors`).
    This torch.export silently drops a new tensor that is assigned to a submodule's buffer
    (`self.cache = new`); it supports writes in place (`self.cache.copy_(new)`).
    """
    forward = module.forward

    @functools.wraps(forward)
    def keeping(*arguments: Any, **keywords: Any) -> Any:
        before = [(o, n, tensor) for o in module.modules() for n, tensor in o._buffers.items()]
        result = forward(*arguments, **keywords)
        assigned = []
        for owner, name, old in before:  # read all before writing any: two may be swapped
            if (new := owner._buffers.get(name)) is old:
                continue
            if old is None or new is None:
                fact = f"buffer {name!r} is assigned {'nothing' if new is None else 'a tensor'}"
                raise ExportError("state", fact, "Register it with the shape that it keeps")
            assigned.append((owner, name, old, new.clone()))
        for owner, name, old, value in assigned:
            owner._buffers[name] = old.copy_(value)
        return tree_map_only(Tensor, _apart, named_tensors(result))

    known, register = set(map(id, module.modules())), torch.nn.Module.register_buffer

    def checked(owner: torch.nn.Module, name: str, *value: Any, **how: Any) -> None:
        if id(owner) in known and name not in owner._buffers:
            raise RuntimeError(f"buffer {name!r} is registered in forward")
        register(owner, name, *value, **how)

    registering = patch.object(torch.nn.Module, "register_buffer", checked)
    with patch.object(module, "forward", keeping), registering:
        yield


def with_own_state(program: ExportedProgram) -> ExportedProgram:
    """Return the program with copies of its state, so that the module's tensors stay separate."""
    for name in state_of(program):
        holder = program.state_dict if name in program.state_dict else program.constants
        holder[name] = holder[name].detach().clone()
    return program


def flat(program: ExportedProgram) -> ExportedProgram:
    """Return the program with positional tensors as inputs and Python's containers as results.

    Constants are in the graph already. A program called with tensors alone is returned unchanged.
    """
    call, specs = program.call_spec, program.graph_signature.input_specs
    constants = [spec for spec in specs if isinstance(spec.arg, ConstantArgument)]
    taken = [given.is_leaf() for side in call.in_spec.children() for given in side.children()]
    if all(taken) and not constants and is_plain(call.out_spec):
        return program
    editor = ProgramEditor(program, as_written=True)
    editor.drop_inputs(constants)
    made = editor.finish()
    tensors = tuple(t for t in tree_leaves(program.example_inputs) if isinstance(t, Tensor))
    names = list(map(str, made.graph_signature.user_inputs))
    results = tree_structure(dict.fromkeys(output_names(program)))
    signature = ModuleCallSignature([], [], tree_structure((tensors, {})), results, names)
    made._module_call_graph = [ModuleCallEntry(fqn="", signature=signature)]
    made.example_inputs = (tensors, {})
    return made


def _decomposed(
    place: str, program: ExportedProgram, records: list[PassRecord], *, deferred: bool = False
) -> ExportedProgram:
    """Return the program in inference form, by passes and by torch's own trace between them."""
    program = run_canonical(place, program, _BEFORE, records)
    _refuse_derivatives(place, program)
    nodes = len(program.graph.nodes)
    with patch.object(FlexAttentionHOP, "__call__", _flex_attention):
        program = functional(program)
    records.append(record_trace(nodes, len(program.graph.nodes)))
    after = DropAssertions(deferred=deferred), RoundToHalves()
    return run_canonical(place, program, after, records)


def _refuse_derivatives(place: str, program: ExportedProgram) -> None:
    """Refuse torch.func.grad and its kin, whose tensors torch.export takes for constants."""
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if isinstance(graph, GraphModule) else ():
            if getattr(node.target, "__name__", "") in {"_unwrap_for_grad", "_make_dual"}:
                fact = f"derivatives are taken by {origin(node)}"
                raise ExportError(place, fact, _WRITTEN_OUT)


def _flex_attention(  # noqa: PLR0917 - PyTorch's own list
    _: Any, query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Any,
    scale: float, options: Any, of_score: tuple[Any, ...] = (), of_mask: tuple[Any, ...] = (),  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Decompose an attention whose scores a model's own functions change and mask.

    Besides its result, return the base-2 logarithms of the weights' divisors, and again instead of
    the largest scores, which torch returns on no CPU (torch.nn.attention.flex_attention).
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, 1) for t in (key, value))
    exact = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(exact) @ key.to(exact).mT * scale
    places = [torch.arange(size) for size in scores.shape]
    change = _vmap_for_bhqkv(score_mod, prefix=(0,), suffix=(None,) * len(of_score))
    allow = _vmap_for_bhqkv(block_mask[-1], prefix=(), suffix=(None,) * len(of_mask))
    scores = change(scores, *places, *of_score)
    scores = scores.masked_fill(~allow(*places, *of_mask), -torch.inf)
    weights = torch._safe_softmax(scores, -1).to(query.dtype)
    divisor = scores.logsumexp(-1) / math.log(2)
    return weights @ value, divisor, divisor


def dynamic_shapes(spec: ProgramSpec) -> tuple[dict[int, Dim], ...]:
    """Return torch.export's dynamic shapes for the program's inputs in order."""
    dims: dict[str, Any] = {}
    for name, bounds in spec.dimensions.items():
        step = bounds.multiple_of
        called = name if step == 1 else f"{name}_units"
        units = torch.export.Dim(called, min=bounds.low // step, max=bounds.high // step)
        dims[name] = units if step == 1 else step * units
    return tuple(
        {axis: dims[size] for axis, size in enumerate(i.shape) if isinstance(size, str)}
        for i in spec.inputs
    )


def _unwritable(module: torch.nn.Module | ExportedProgram) -> tuple[str, str] | None:
    """Return the first parameter or buffer whose name is not valid in Python code, and why."""
    for name, _ in (*module.named_parameters(), *module.named_buffers()):
        for part in name.split("."):
            if keyword.iskeyword(part):
                return name, f"whose word {part!r} is"
            odd = [c for c in part if c in '"\\' or not c.isprintable()]
            if odd and not _is_quotable(part):
                return repr(name), f"where no name has {odd[0]!r}"
    return None


def _is_quotable(text: str) -> bool:
    try:
        ast.literal_eval(f'"{text}"')
    except (SyntaxError, ValueError):
        return False
    return True


def _shared_memory(module: torch.nn.Module | ExportedProgram) -> str:
    names: dict[int, list[str]] = {}
    for name, tensor in module.state_dict().items():
        names.setdefault(tensor.untyped_storage()._cdata, []).append(repr(name))
    return ", ".join(" and ".join(group) for group in names.values() if len(group) > 1)


def _failed(place: str, error: Exception, module: torch.nn.Module | ExportedProgram) -> ExportError:
    """Return torch's error with the user's line, reworded for users where possible."""
    text, where = str(error), ""
    told = [*_CAUSES.findall(text), *_LINES.findall(text)]
    for each in (error, error.__context__):
        calls = traceback.extract_tb(each.__traceback__ if each else None)
        lines = [*told, *((call.filename, call.lineno) for call in calls)]
        sites = [f" at {name}:{line}" for name, line in lines if not name.startswith(NOT_THEIRS)]
        where = where or "".join(sites[-1:])
    if "data-dependent" in text or isinstance(error, DataDependentOutputException):
        said = text.strip().partition("\n")[0].partition(" (unhinted")[0]
        fact = f"a size or a branch depends on values of a tensor{where or f' ({said})'}"
        advice = "Choose by torch.where, pad to a fixed size, or return a mask"
        if "nms" in text:
            advice = "Convert what scores boxes (`backbone`, `head`), and suppress boxes outside"
        return ExportError(place, fact, advice)
    step = next((step for each, step in _ADVICE.items() if each in text), TRY_ALONE)
    if fixed := _SPECIALISED.findall(text):
        step = _ONE if all(size in {"1", unit} for unit, size in fixed) else _FIXED
    said = plain_words(text) or "it cannot follow an operation of the model"
    if re.fullmatch(r"[\w.]+", said):
        said = f"it knows no results of the operator {said.replace('._', '.')}"
    said = next((fact for each, fact in _FACTS.items() if each in text), said)
    if "expected compiled_fn" in text:
        said = f"forward writes a buffer that shares its memory: {_shared_memory(module)}"
    return ExportError(place, f"torch.export failed{where}: {said}", step)


_FACTS = {  # by what torch says
    "register it as buffer": "forward writes into a tensor that no buffer of the module holds",
    "no attribute 'constant'": "derivatives are taken",
    "Cannot create Dim": "no range of a dynamic size fits the blocks that the model cuts it into",
    "Pending unbacked symbols": "a size or a place is read out of a tensor",
}
_WRITTEN_OUT = "Write them out: the export does not record them"
_ADVICE = {  # likewise
    "dynamic shape spec": "Give dynamic_shapes the structure of the inputs: {axis: Dim} for each "
    "tensor, None where all sizes are fixed",
    "Cannot create Dim": "Use n * Dim for a size that the model cuts into blocks of n, or fix it",
    "mutation on a view chain": "Write through one view at a time, or by index: x[i, i] = 0",
    "must always be equal": "Give these sizes the same Dim in dynamic_shapes",
    "not in range": "Give an example whose sizes are in the ranges of dynamic_shapes",
    "guard math.trunc(": "int() fixes a size: write math.floor, or math.ceil of a negative number",
    "Constraints violated": "Narrow the range of the dimension to what the model allows",
    "was assigned during export": "Make it in __init__, by register_buffer, or call the module "
    "once before",
    "uninitialized parameter": "Call the module once before: lazy modules make their weights then",
    **dict.fromkeys(
        ("Cannot view", "view size is not compatible"),
        "Artifacts take inputs row after row, whatever strides an example has: use .reshape",
    ),
    "but got FakeTensor": "Let no size be read out of a tensor: pad and mask sequences, and do not "
    "pack them",
    "Pending unbacked symbols": "Make tables of nonzero or combinations in __init__",
    "fake tensor in the exported program": "Write into buffers alone, and not through `.data`. "
    "Write derivatives out",
    "no attribute 'constant'": _WRITTEN_OUT,  # from torch.func.jacfwd
    "register it as buffer": "Write into no tensor outside the module: keep state in a buffer, "
    "self.register_buffer('state', torch.zeros(...))",
    "is registered in forward": "Register it in __init__, with its first value",
    "does not require grad": "Leave gradients out: an artifact has none",
    "_ctc_loss": "Leave the loss out: convert what gives log_probs",
    "linalg_lstsq": "Solve by torch.linalg.pinv(a) @ b, or by torch.linalg.qr",
    "data pointer": "Leave data_ptr out: an artifact's tensors lie elsewhere",
    ".numpy()": "Compute with torch: what NumPy makes is not part of the graph",
    "is missing nn_module_stack": "Assign a new tensor to a buffer: self.last = x.clone()",
    "expected compiled_fn to be GraphModule": "Register the memory once, and take views in forward",
}
