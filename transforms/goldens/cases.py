"""Golden cases: seeded inputs, eager PyTorch's outputs for them, and outputs in float64.

Noise at telling sizes comes first. The last case has real samples if the entry has some, or else
synthetic pictures or speech if the program takes these. Float64 is the truth against which eager
and artifact are measured: on the case that looks like data, which has the smallest telling sizes,
or on the first case if none does.
"""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from menagerie.validation.findings import CaseKind
from menagerie.validation.samples import TABLE, is_large, places
from transforms.goldens.realistic import Content, Values, content_of, draw, generator_of, sizes_of
from transforms.graph.call_signature import Call, Eager, Signature
from transforms.graph.callable import eager_of, without_fast_path
from transforms.graph.layouts import plain
from zoo.errors import ExportError
from zoo.sources.random_weights import torch_threads
from zoo.spec import Dimension, InputSpec, ProgramSpec, SampleKind

aten = torch.ops.aten


@dataclass(frozen=True)
class GoldenCase:
    """One call of a program: sizes of the dynamic dimensions, inputs, and eager's outputs.

    The cases of a program that keeps state form runs of consecutive calls.
    """

    dimensions: dict[str, int]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    kind: CaseKind = CaseKind.GIVEN
    seconds: float = 0.0  # that eager took, in one thread


@dataclass(frozen=True)
class PlannedCase:
    """Sizes of the dynamic dimensions, and the kind of the inputs."""

    dimensions: dict[str, int]  # by name
    kind: CaseKind  # of the inputs
    fixed: str = "its fixed sizes"  # its name in errors if no size is dynamic
    # The advice if eager fails on it
    step: str = "Fix the inputs, arguments or ranges in the manifest"


def planned_cases(spec: ProgramSpec, real: Mapping[str, Tensor] | None = None) -> list[PlannedCase]:
    """Return all cases; noise covers each dimension at an odd middle value, low and high.

    The first case is the middle one, so that it serves as a typical size where one is needed. Noise
    repeats middle, low and high with other seeds until there are `golden_cases`.
    """
    noise, last = telling_sizes(spec.dimensions), _lifelike_case(spec, real)
    count = max(len(noise), spec.golden_cases - len(last))
    return [PlannedCase(noise[i % len(noise)], CaseKind.NOISE) for i in range(count)] + last


def _lifelike_case(spec: ProgramSpec, real: Mapping[str, Tensor] | None) -> list[PlannedCase]:
    if real is not None:
        shapes = ((i.shape, real[i.name].shape) for i in spec.inputs)
        axes = (pair for named, found in shapes for pair in zip(named, found, strict=True))
        sizes = {name: size for name, size in axes if isinstance(name, str)}
        return [PlannedCase(sizes, CaseKind.SAMPLE)]
    contents = [found for i in spec.inputs if (found := _content(i)) is not None]
    if not contents:
        return []
    return [PlannedCase(sizes_of(spec.inputs, spec.dimensions), contents[0].kind)]


def _content(spec: InputSpec) -> Content | None:
    """Return an input's content; None unless the entry draws normal or uniform numbers for it."""
    drawn = spec.sample.kind in {SampleKind.NORMAL, SampleKind.UNIFORM}
    return content_of(spec) if drawn else None


def telling_sizes(dimensions: Mapping[str, Dimension]) -> list[dict[str, int]]:
    """Return all dimensions in the middle (odd), all at their lowest, all highest, then mixtures.

    In a mixture one dimension is low among high ones, or high among low ones: any two of n
    dimensions are tried at each pair of their ends, in 2 n cases instead of 2**n.
    """
    if not dimensions:
        return [{}]
    levels = [
        {n: _middle(d) for n, d in dimensions.items()},
        {n: d.low for n, d in dimensions.items()},
        {n: d.high for n, d in dimensions.items()},
    ]
    _, low, high = levels
    mixed = [
        {**most, name: one[name]} for name in dimensions for one, most in ((low, high), (high, low))
    ]
    return levels + [case for i, case in enumerate(mixed) if case not in mixed[:i] + levels[1:]]


def make_inputs(
    spec: ProgramSpec,
    planned: PlannedCase,
    *,
    seed: int,
    dtype: torch.dtype,
    real: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Sample every input of a program.

    Unless the case is noise, pictures and speech are lifelike, and masks reveal all of them. Each
    input draws from its own generator, so the order does not matter. Inputs declared float32 take
    the model's dtype, so that half models get half inputs. `real` are the inputs of a sample case.
    """
    if planned.kind is CaseKind.SAMPLE and real is not None:
        return {i.name: real[i.name].to(input_dtype(i, dtype)) for i in spec.inputs}
    return {i.name: _sample(i, planned, seed, dtype) for i in spec.inputs}


def first_inputs(
    model: torch.nn.Module, spec: ProgramSpec, real: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Return the inputs of the first case that `make_goldens` makes from the same arguments."""
    first = planned_cases(spec, real)[0]
    return make_inputs(spec, first, seed=0, dtype=model_dtype(model), real=real)


@without_fast_path()
def make_goldens(
    model: torch.nn.Module,
    spec: ProgramSpec,
    *,
    calls: int = 1,
    real: Mapping[str, Tensor] | None = None,
) -> list[GoldenCase]:
    """Make the golden cases of a manifest's program by `run_cases`; the model's buffers stay.

    If the entry has samples, `real` are the inputs of the last case; they suffice for one call, so
    a run of several calls does not use them.
    """
    dtype = model_dtype(model)

    def inputs(planned: PlannedCase, number: int, call: int) -> dict[str, Tensor]:
        seed = number * calls + call
        return make_inputs(spec, planned, seed=seed, dtype=dtype, real=real)

    plan = planned_cases(spec, real if calls == 1 else None)
    return run_cases(f"program {spec.name}", plan, inputs, eager_of(model, spec), calls)


def run_cases(
    place: str,
    plan: Sequence[PlannedCase],
    inputs: Callable[[PlannedCase, int, int], dict[str, Tensor]],
    eager: Eager,
    calls: int,
) -> list[GoldenCase]:
    """Run eager on every case, in one thread, so that two machines produce the same bytes.

    `inputs` makes the inputs for a case, its number and one of its calls; `eager` does not change
    them or its results. Noise is redrawn if a short output is nearly 0. `calls` follow each other
    from the first state on, and are more than one only for a program with state; the cases are
    these calls, run after run. Raise ExportError, at `place`, if inputs cannot be drawn or eager
    fails on a case, with its sizes; or if its outputs could prove nothing: there is none, or one
    has no finite element in any case.
    """
    cases = list[GoldenCase]()
    for number, planned in enumerate(plan):
        drawn = planned.kind in {CaseKind.NOISE, CaseKind.REDRAWN}
        for again in range(_DRAWS if drawn and calls == 1 else 1):
            draw = functools.partial(inputs, planned, number + _NEXT_SEED * again)
            made = _calls(place, planned, draw, eager, calls)
            if not _is_near_zero(made[-1], cases):
                break
        cases += made
    _check_outputs(place, cases)
    return cases


def _calls(
    place: str,
    planned: PlannedCase,
    draw: Callable[[int], dict[str, Tensor]],
    eager: Eager,
    calls: int,
) -> list[GoldenCase]:
    run, cases = eager.from_first_state(), list[GoldenCase]()
    for call in range(calls):
        try:
            given = draw(call)
            began = time.perf_counter()
            results = run_exactly(run, given)
            seconds = time.perf_counter() - began
            outputs = {name: value.clone() for name, value in results.items()}
        except ExportError:
            raise
        except Exception as error:
            at, step = str(planned.dimensions or planned.fixed), planned.step
            if calls > 1:
                at += f", in call {call + 1} of {calls} after a reset"
                step += ", or give fewer `calls`"
            fact = f"eager PyTorch fails at {at}: {error}"
            raise ExportError(place, fact, step) from error
        if any(isinstance(value, FakeTensor) for value in outputs.values()):
            fact = "keeps a tensor in Python from call to call, where no artifact has any"
            raise ExportError(place, fact, _KEPT)
        if elsewhere := [n for n, value in outputs.items() if value.device.type != "cpu"]:
            fact = f"output {elsewhere[0]} is on device {outputs[elsewhere[0]].device}"
            raise ExportError(place, fact, "Return tensors that are on the CPU")
        cases.append(GoldenCase(planned.dimensions, given, outputs, planned.kind, seconds))
    return cases


def _is_near_zero(case: GoldenCase, others: Sequence[GoldenCase]) -> bool:
    """Return whether a short output is nearly 0 by chance, so that a ratio to it is meaningless."""
    return any(
        _largest(value) < _NEAR * max(_largest(other.outputs[name]) for other in others)
        for name, value in case.outputs.items()
        if others and value.is_floating_point() and 0 < value.numel() < _SHORT
    )


def _largest(value: Tensor) -> float:
    finite = value[value.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def run_exactly(call: Call, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the result of a call in one thread, on a copy of the inputs."""
    # If a mode blocked compilation of a function, torch would not compile it later either.
    eager = torch.compiler.set_stance("force_eager")
    trees = patch("torch._higher_order_ops.utils._hop_compile_and_call", _in_trees)
    with torch.no_grad(), torch_threads(1), eager, trees, TiesInOrder():  # type: ignore[no-untyped-call]
        return call({name: tensor.clone() for name, tensor in inputs.items()})


def _in_trees(loop: Any, arguments: Sequence[Any]) -> Any:
    """Call one of torch's loops, which supports dictionaries and lists only when compiled."""
    shapes, *_, body = [], *filter(callable, arguments)

    def flat(*tensors: Any) -> tuple[Any, ...]:
        leaves, shape = tree_flatten(body(*tensors))
        shapes.append(shape)
        return tuple(leaves)

    result = loop(*(flat if each is body else each for each in arguments))
    return tree_unflatten(tree_leaves(result), shapes[0]) if shapes else result


class EagerMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode for eager calls, without torch's guards, since `run_exactly` compiles nothing."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class TiesInOrder(EagerMode):  # type: ignore[no-untyped-call]
    """A mode in which equal values of sorts and selections keep their order; half norms round once.

    Eager leaves open which of equal values comes first; an artifact, whose sorts are stable, could
    not be compared with it.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute the requested call, by a stable sort if that determines an order."""
        return _IN_ORDER.get(func, func)(*args, **(kwargs or {}))


_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class _Widened(EagerMode):  # type: ignore[no-untyped-call]
    """A mode in which float32 values that a model makes, casts to or keeps are float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute with widened arguments, which make a wide result."""
        wide = {name: _widened(value) for name, value in (kwargs or {}).items()}
        found = func(*map(_widened, args), **wide)
        return _decided(*found) if func in _NORMS else found


def _decided(normal: Tensor, mean: Any, inverse: Tensor) -> tuple[Any, ...]:
    """Return a norm with NaN in rows whose squares may overflow float32, depending on sum order."""
    rows = normal.reshape(*inverse.shape, -1)
    lost = inverse[..., None] * 2.0**63 < rows.shape[-1]  # half of the largest number's root
    return rows.masked_fill(lost, torch.nan).reshape(normal.shape), mean, inverse


def _widened(value: Any) -> Any:
    """Return an argument, or a list of arguments, with float64 instead of float32."""
    if isinstance(value, Tensor):
        return value.to(_WIDE[value.dtype]) if value.dtype in _WIDE else value
    if isinstance(value, (list, tuple)):
        return value if all(isinstance(of, int) for of in value) else tree_map(_widened, value)
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def in_float64(eager: Eager) -> Call | None:
    """Return the first call with weights, inputs and arithmetic in float64.

    Return None if the model cannot be copied. The call raises if the model rejects float64.
    """
    try:
        wide = replace(eager, module=_wide_copy(eager.module))
    except Exception:  # noqa: BLE001 - a module may raise anything
        return None

    def call(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # for tensors made in forward, such as torch.eye(n)
        try:
            with _Widened():  # type: ignore[no-untyped-call]
                return wide.first(given)
        finally:
            torch.set_default_dtype(before)

    return call


def _is_large(module: torch.nn.Module) -> bool:
    return sum(p.numel() for p in module.parameters()) > _MOST_PARAMETERS


def _wide_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in float64; a large model's parameters stay, and are widened at each use."""
    if not _is_large(module):
        return copy.deepcopy(module).double()
    wide = copy.deepcopy(module, {id(p): p for p in module.parameters()})
    for part in wide.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, _widened(buffer))
    return wide


def _sorted(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _first(x: Tensor, k: int, dim: int = -1, largest: bool = True, in_order: bool = True) -> Any:
    if x.dim() == 0:
        return aten.topk.default(x, k, dim, largest, in_order)
    return tuple(part.narrow(dim, 0, k).contiguous() for part in _sorted(x, dim, largest))


def _kth(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if x.dim() == 0:
        return aten.kthvalue.default(x, k, dim, keepdim)
    chosen = [part.narrow(dim, k - 1, 1) for part in _sorted(x, dim)]
    return tuple(part if keepdim else part.squeeze(dim) for part in chosen)


def _nanmedian(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    values, places = aten.nanmedian.dim(x, dim, keepdim)
    return values, torch.where(values.isnan(), 0, places)  # for NaN alone, the first


def _rounded_once(norm: Callable[..., Any], x: Tensor, *how: Any) -> Any:
    """Compute a norm of halves in float32; eager's own is off by 0.7 for a row with one 65504."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return norm(x, *how)
    wide = [t.float() if isinstance(t, Tensor) else t for t in (x, *how)]
    return tuple(result.to(x.dtype) for result in norm(*wide))


def _column(resize: Callable[..., Any], x: Tensor, size: Any, *how: Any) -> Any:
    """Resize two equal columns instead of a single one, whose first element eager repeats."""
    if size[1] == x.shape[3] == 1:
        return resize(x.repeat(1, 1, 1, 2), [size[0], 2], *how[:2])[..., :1].contiguous()
    return resize(x, size, *how)


_RESIZES = (aten._upsample_bilinear2d_aa.default, aten._upsample_bicubic2d_aa.default)
_NORMS = (aten.native_layer_norm.default, aten.native_group_norm.default)
_SHORT = 16  # elements; an average over more is meaningful
_NEAR = 0.1  # of the largest value in another case
_DRAWS = 8  # for a case's inputs
_NEXT_SEED = 1000  # for a case that is drawn again
_KEPT = (
    "State goes into a buffer: self.register_buffer('state', torch.zeros(...)), written in place. "
    "What is only made once is made in __init__, or by a call before"
)
_IN_ORDER: dict[object, Callable[..., Any]] = {
    **{norm: functools.partial(_rounded_once, norm) for norm in _NORMS},
    **{resize: functools.partial(_column, resize) for resize in _RESIZES},
    aten.sort.default: _sorted,
    aten.sort.stable: lambda x, **how: aten.sort.stable(x, **{**how, "stable": True}),
    aten.topk.default: _first,
    aten.kthvalue.default: _kth,
    aten.nanmedian.dim: _nanmedian,
}


def input_dtype(spec: InputSpec, model_dtype: torch.dtype) -> torch.dtype:
    """Return an input's dtype in a model of this dtype; inputs declared float32 follow it."""
    declared: torch.dtype = getattr(torch, spec.dtype.value)
    return model_dtype if declared is torch.float32 else declared


def model_dtype(model: torch.nn.Module) -> torch.dtype:
    """Return the dtype of a model's first floating-point parameter; float32 if there is none."""
    floats = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


def _check_outputs(place: str, cases: Sequence[GoldenCase]) -> None:
    """Raise ExportError for an output that would equal anything compared with it."""
    for name in cases[0].outputs:
        values = [case.outputs[name] for case in cases]
        if not any(value.numel() for value in values):
            fact = f"output {name} has no element in any golden case"
            step = "Enlarge the inputs, or name only the other outputs under `outputs`"
            raise ExportError(place, fact, step)
        if not any(bool(value.isfinite().any()) for value in values):
            fact = f"output {name} of eager PyTorch has no finite element in any golden case"
            step = "Fix the weights, or choose inputs for which its results are finite"
            raise ExportError(place, fact, step)


def check_shapes(place: str, signature: Signature, cases: Sequence[GoldenCase]) -> None:
    """Raise ExportError if the signature's output shapes differ from eager's at some sizes."""
    for case in cases:
        for spec in signature.outputs:
            found = tuple(case.outputs[spec.name].shape)
            sizes: Mapping[Any, Any] = case.dimensions
            wanted = tuple(sizes.get(size, size) for size in spec.shape)
            pairs = zip(found, wanted, strict=False)
            if len(found) == len(wanted) and all(n == w for n, w in pairs if isinstance(w, int)):
                continue
            fact = f"output {spec.name} is {list(found)} in eager PyTorch at {case.dimensions}"
            raise ExportError(
                place,
                f"{fact}, and {list(spec.shape)} as it was exported",
                "Name the axes of what treats a size of 1 apart, such as .squeeze(1), or begin the "
                "range at 2",
            )


def _middle(dimension: Dimension) -> int:
    """Return an odd value near the middle, or an odd multiple if the dimension has a step."""
    step = dimension.multiple_of
    units = (dimension.low + dimension.high) // 2 // step
    units += 1 - units % 2
    return min(max(units * step, dimension.low), dimension.high)


def _sample(spec: InputSpec, planned: PlannedCase, seed: int, dtype: torch.dtype) -> Tensor:
    shape = tuple(s if isinstance(s, int) else planned.dimensions[s] for s in spec.shape)
    generator = generator_of(f"{spec.name}:{seed}")
    sample, lifelike = spec.sample, planned.kind is not CaseKind.NOISE
    content = _content(spec) if lifelike else None
    match sample.kind:
        case SampleKind.NORMAL if content is not None:
            values = Values(sample.mean, sample.std)
            drawn = draw(content, shape, values, seed=f"{spec.name}:{seed}")
        case SampleKind.UNIFORM if content is not None:
            span, middle = sample.high - sample.low, (sample.low + sample.high) / 2.0
            values = Values(middle, span / math.sqrt(12.0), sample.low, sample.high)
            drawn = draw(content, shape, values, seed=f"{spec.name}:{seed}")
        case SampleKind.NORMAL:
            noise = functools.partial(torch.randn, generator=generator)
            drawn = _drawn(noise, shape) * sample.std + sample.mean
        case SampleKind.UNIFORM:
            span = sample.high - sample.low
            noise = functools.partial(torch.rand, generator=generator)
            drawn = _drawn(noise, shape) * span + sample.low
        case SampleKind.INTEGERS:
            low, high = int(sample.low), int(sample.high)
            drawn = _drawn(lambda s: torch.randint(low, high, s, generator=generator), shape)
        case SampleKind.PREFIX_MASK if not lifelike:
            length = torch.randint(1, shape[-1] + 1, (*shape[:-1], 1), generator=generator)
            drawn = torch.arange(shape[-1]).expand(shape) < length
        case SampleKind.PREFIX_MASK | SampleKind.ONES:
            drawn = torch.ones(shape)
    return drawn.to(input_dtype(spec, dtype)).contiguous()


def _drawn(noise: Callable[[tuple[int, ...]], Tensor], shape: tuple[int, ...]) -> Tensor:
    """Draw noise; for a large tensor draw a table only, which is all that a bundle stores."""
    elements = math.prod(shape)
    if not is_large(elements):
        return noise(shape)
    return noise((TABLE,))[torch.from_numpy(places(elements).astype(np.int64))].reshape(shape)


_LIKE_DATA = frozenset({CaseKind.PICTURE, CaseKind.SPEECH, CaseKind.SAMPLE})
_MOST_PARAMETERS = 200_000_000  # their float64 copy takes 1.6 GB
_MOST_BYTES = 2**24  # the most for an output that a bundle stores for this
_LEAST_SNR = 1e3  # eager's norm over its error; below it the float64 model computes something else


def exact_outputs(eager: Eager, cases: Sequence[GoldenCase]) -> dict[str, Tensor]:
    """Return one golden case's outputs with weights, inputs and arithmetic in float64, by name.

    Floating inputs are widened, so both see the same numbers. Skip a case that is large or fails in
    float64, and an output that is not floating or differs from eager's by more than a thousandth,
    since something in the model then depends on the dtype.
    """
    number = next((n for n, case in enumerate(cases) if case.kind in _LIKE_DATA), 0)
    case = cases[number]
    floats = {v.dtype for v in case.inputs.values() if v.is_floating_point()}
    is_whole = not _is_large(eager.module) and floats <= {torch.float32, torch.float64}
    if not is_whole or (run := in_float64(eager)) is None:
        return {}
    try:
        found = run_exactly(run, case.inputs)
    except Exception:  # noqa: BLE001 - a model may reject float64 in any way
        return {}
    truth = {name: value.detach() for name, value in found.items()}  # a parameter may be an output
    return {
        f"{number}/exact/{name}": plain(value)
        for name, value in truth.items()
        if _tells(value, case.outputs[name].detach())
    }


def _tells(exact: Tensor, eager: Tensor) -> bool:
    is_small = exact.dtype is torch.float64 and exact.nbytes <= _MOST_BYTES
    if not (is_small and exact.shape == eager.shape and exact.isfinite().all()):
        return False
    return float((exact - eager.double()).norm()) * _LEAST_SNR <= float(exact.norm())
