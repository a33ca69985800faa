"""Eager PyTorch's answers to attempts to refute a program (`menagerie.validation.refuting`).

The number of attempts depends on the program's work alone, so that two machines make the same file.
"""

from __future__ import annotations

import faulthandler
import itertools
import signal
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from menagerie.numerics import Dtype
from menagerie.validation.refuting import SPECIAL, Attempt, Kind, Plan, attempts
from transforms.goldens.cases import EagerMode, GoldenCase, in_float64, run_exactly
from transforms.graph.aliasing import nodes_of
from transforms.graph.call_signature import Call, Eager, Signature
from transforms.graph.complex_planes import is_complex
from transforms.graph.layouts import as_array, as_tensor, plain
from transforms.graph.schemas import is_elementwise, schema_of

Answers = tuple[Plan, dict[str, Tensor]]

# Operators whose last bit depends on the order of a sum, or on a function's implementation.
_ROUNDED = frozenset({
    "sum", "mean", "var", "var_mean", "std", "std_mean", "linalg_vector_norm", "norm", "prod",
    "cumsum", "cumprod", "logsumexp", "logcumsumexp", "dot", "mv", "addmv", "mm", "addmm", "bmm",
    "baddbmm", "convolution", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "_native_batch_norm_legit_no_training", "_softmax", "_log_softmax", "avg_pool2d",
    "_adaptive_avg_pool2d", "_scaled_dot_product_flash_attention_for_cpu", "_fft_c2r",
    "exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "rsqrt", "pow", "silu",
    "gelu", "softplus",
})  # fmt: skip
# Attempts whose features may vary by rounding only, which a normalisation amplifies.
_EVEN = frozenset({Kind.ZEROS, Kind.EQUAL, Kind.TIES, Kind.LARGE, Kind.TINY})
# Attempts at which outputs of only NaN are NaN in float64 too; clamped infinities may differ.
_OF_NAN = frozenset({Kind.ONE_NAN, Kind.ALL_NAN})

_WORK = 6e9  # FLOPs of eager for all attempts: about 0.3 s of one core
_FEW = 5  # attempts, whatever they cost, up to ...
_CHEAP = 1e10  # ... FLOPs per call, and ...
_FEWEST = 2  # ... up to ...
_MOST_WORK = 1e11  # ... FLOPs per call
_OF_AN_ELEMENT = 100.0  # FLOPs counted for each element of an input or output
_IN_FLOAT64 = 3.0  # factor of work: float64 takes twice as long as float32
_BYTES = 2**20  # of all answers, or a tenth of the weights if that is more
_SECONDS = 240  # after which an eager that hangs is killed
_MOST_SIZES = 12  # that are tried as indices
_TEXT = 200  # characters of eager's message

# Operators of docs/special-values.md, and the attempts at which their results differ.
_NAN = (Kind.ONE_NAN, Kind.ALL_NAN, Kind.INFINITIES)  # their sum in an earlier layer is NaN
_LARGE = (Kind.INFINITIES, Kind.HUGE, Kind.HIGHEST, Kind.LOWEST)
_OF_POWERS = ("addcdiv", "digamma", "fmod", "ldexp", "lgamma", "nextafter", "pow", "remainder")
_OF_MAXIMA = ("adaptive_max_pool", *(f"max_pool{n}d_with_indices" for n in (1, 2, 3)))
_OF_PLACES = ("grid_sampler", "torchvision.deform_conv2d", "_fft_", "fft_", "stft", "histc")
_OF_ORDERS = ("cholesky_inverse", "chebyshev_polynomial_w", "legendre_polynomial_p")
LISTED: Mapping[str, tuple[Kind, ...]] = {
    **dict.fromkeys(_OF_POWERS, (*_LARGE, Kind.TINY)),
    **dict.fromkeys(("addcmul", "zeta", "upsample_", "hardswish", "var"), _LARGE),
    **dict.fromkeys((*_OF_PLACES, *_OF_ORDERS), (*_NAN, *_LARGE)),
    **dict.fromkeys((*_OF_MAXIMA, "multi_margin_loss", "mode", "linalg_qr"), _NAN),
    **dict.fromkeys(("linalg_cholesky", "linalg_det", "linalg_slogdet"), (Kind.INFINITIES,)),
}
_CASTS = "floats as integers"
_BYTES_OF_FLOATS = "floats as integers of 8 bits"
_COMPLEX = "products of complex numbers"
# Operators that yield NaN where eager yields other elements, by a part of their name.
_SPREADS = {
    "conv": "Winograd's algorithm spreads NaN (docs/special-values.md)",
    "scaled_dot_product": "eager's attention loses NaN (docs/special-values.md)",
}
# Operators that sum products, by a part of their name.
_PRODUCTS = ("conv", "linear", "mm", "matmul", "einsum", "attention", "lstm", "gru", "rnn")
# Operators of one operand that multiply or add to it, so that a pass may change their order.
_ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "pow", "square", "reciprocal")
_ORDER = "sums of products overflow by their order (docs/special-values.md)"


def excuses(program: ExportedProgram, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the reasons of a program's plan by their names, from the operators that it calls.

    `outputs` are the names of its outputs. `reaches` holds those that depend on these operators,
    `special_kinds` the attempts at which they differ.
    """
    special, spreads = dict[str, list[Node]](), dict[str, list[Node]]()
    sums, combining = list[Node](), list[Node]()
    calls = [n for n in program.graph.nodes if isinstance(n.target, HigherOrderOperator)]
    for node in nodes_of(program):
        seen = [node] if node.graph is program.graph else calls  # in loops or branches
        name = str(node.target).removeprefix("aten.").removeprefix("special_")
        # A function that export has decomposed: `function.multi_margin_loss`.
        names = name, str(node.meta.get("torch_fn", ("", ""))[1]).split(".")[-1]
        for each in LISTED:
            if any(n.startswith(each) for n in names) and not _is_as_eager(node):
                special.setdefault(each, []).extend(seen)
        if _is_cast_to_integers(node):
            is_byte = node.meta["val"].dtype.itemsize == 1 and not _is_within(node)
            special.setdefault(_BYTES_OF_FLOATS if is_byte else _CASTS, []).extend(seen)
        if is_complex(node) and any(part in name for part in _PRODUCTS):
            special.setdefault(_COMPLEX, []).extend(seen)
        for part, why in _SPREADS.items():
            if part in name:
                spreads.setdefault(why, []).extend(seen)
        sums += seen if any(part in name for part in _PRODUCTS) else []
        combining += seen if _combines(node) else []
    causes = {
        "special": [*itertools.chain(*special.values())],
        "spread": [*itertools.chain(*spreads.values())],
        "order": sums,
    }
    reaches = {n: _reached(program, outputs, nodes) for n, nodes in causes.items() if nodes}
    beyond = (*SPECIAL, Kind.LARGE)
    listed = {**LISTED, _COMPLEX: _LARGE, _CASTS: beyond}
    listed[_BYTES_OF_FLOATS] = (*beyond, Kind.NEGATIVE, Kind.EQUAL)
    kinds = [kind for name in special for kind in listed[name]]
    return {
        "special": f"docs/special-values.md lists {', '.join(special)}" if special else "",
        "spread": next(iter(spreads), ""),
        "order": _ORDER * bool(sums),
        "reaches": reaches | {"overflow": _reached(program, outputs, combining)},
        "special_kinds": tuple(kind for kind in Kind if kind in kinds),
    }


def _is_as_eager(node: Node) -> bool:
    """Return whether a listed operator matches eager here: integer powers, samples of no half."""
    if "grid_sampler" in str(node.target):
        return bool(node.meta["val"].dtype.itemsize >= torch.float32.itemsize)
    exponent = node.args[1] if len(node.args) > 1 else None
    is_power = str(node.target).startswith("aten.pow.Tensor_Scalar")
    return is_power and isinstance(exponent, (int, float)) and exponent == int(exponent)


def _combines(node: Node) -> bool:
    """Return whether a call adds or multiplies numbers, which overflow by their order."""
    schema = schema_of(node.target) if node.op == "call_function" else None
    aliases = [r.alias_info for r in schema.returns if r.alias_info] if schema else []
    if node.op != "call_function" or any(not alias.is_write for alias in aliases):
        return False
    name = str(node.target).removeprefix("aten.").split(".")[0]
    return len(node.all_input_nodes) > 1 or not is_elementwise(node) or name in _ARITHMETIC


def _reached(
    program: ExportedProgram, called: Sequence[str], nodes: Sequence[Node]
) -> tuple[str, ...]:
    """Return the names of outputs that depend on some of the nodes, or on state."""
    found, waiting = set[Node](), [*nodes]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.users
    outputs = {node.name for node in found}
    state = program.graph_signature.buffers_to_mutate.keys() & outputs
    names = zip(called, program.graph_signature.user_outputs, strict=True)
    return tuple(name for name, node in names if state or node in outputs)


def _is_cast_to_integers(node: Node) -> bool:
    """Return whether a node casts floats to integers, where NaN and others have no equivalent."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes[:1])]
    dtypes = [value.dtype for value in values if isinstance(value, Tensor)]
    is_cast = "to" in str(node.target).removeprefix("aten.").split(".")[0].split("_")
    kinds = [dtype.is_floating_point for dtype in dtypes]
    return is_cast and kinds == [False, True] and dtypes[0] is not torch.bool


def _is_within(cast: Node) -> bool:
    """Return whether the cast value was clamped to the integers' range before."""
    source, range_ = cast.all_input_nodes[0], torch.iinfo(cast.meta["val"].dtype)
    while str(source.target).startswith(("aten.round", "aten.floor.", "aten.trunc")):
        source = source.all_input_nodes[0]
    bounds = source.args[1:3] if "clamp" in str(source.target) else ()
    numbers = [n for n in bounds if isinstance(n, (int, float))]
    return len(numbers) == 2 and range_.min <= numbers[0] <= numbers[1] <= range_.max  # noqa: PLR2004


def answers(
    eager: Eager, signature: Signature, goldens: Sequence[GoldenCase], *, has_state: bool,
    excuses: Mapping[str, Any], ends: bool = True,
) -> Answers | None:  # fmt: skip
    """Compute eager's answer to each attempt, in a process that may crash.

    The golden case with the fewest elements is modified. With `has_state` each attempt starts from
    the first state, as golden cases include a second call; without `ends` integers keep their
    values, since eager may end the process at others. The tensors have the names that
    `menagerie.validation.refuting.refute` reads. Return None if a call costs too much.
    """
    faulthandler.disable()  # the fork's crash is no fault of the caller
    signal.alarm(_SECONDS)
    number = min(range(len(goldens)), key=lambda n: _elements(goldens[n].inputs))
    case = goldens[number]
    work = _work(eager.first, case)
    if work > _MOST_WORK:
        return None
    wide = in_float64(eager)
    indices = _indices(eager, signature, case) if work * 100 <= _WORK and ends else {}
    base = {name: as_array(value) for name, value in case.inputs.items()}
    left_out = {Kind.SECOND_CALL} if has_state else set[Kind]()
    left_out |= {Kind.TINY} if wide is None else set()  # rounding may lose its results
    plan, tensors = list[Attempt](), dict[str, Tensor]()
    floats = {spec.name for spec in signature.inputs if spec.dtype.is_floating}
    wanted = [
        attempt
        for attempt in attempts(signature.inputs, indices)
        if attempt.kind not in left_out and (ends or attempt.input in {"", *floats})
    ]
    most = _most(eager, case, work, wide)
    for attempt in wanted[:most]:
        changed = attempt.inputs(base, signature.inputs)
        given = {name: as_tensor(value, case.inputs[name]) for name, value in changed.items()}
        run = eager.first if has_state else eager
        found, raises = _answer(run, wide, given, attempt.kind)
        tensors |= {f"{len(plan)}/{name}": value for name, value in found.items()}
        plan.append(replace(attempt, raises=raises))
    ordinary = [n for n, tried in enumerate(plan) if tried.kind not in SPECIAL and not tried.raises]
    known = [each.outputs for each in goldens]
    known += [{name: tensors[f"{n}/output/{name}"] for name in case.outputs} for n in ordinary]
    constant = tuple(name for name in case.outputs if _is_constant([k[name] for k in known]))
    more, tried = len(wanted) - len(plan), tuple(plan)
    made = Plan(golden=number, attempts=tried, left_out=more, constant=constant, **excuses)
    return made, tensors


def _is_constant(outputs: Sequence[Tensor]) -> bool:
    values = torch.cat([each.flatten() for each in outputs])
    same = len(outputs) > 1 and all(torch.equal(outputs[0], each) for each in outputs[1:])
    return same or bool((values == values[:1]).all())


def _most(eager: Eager, case: GoldenCase, work: float, wide: Call | None) -> int:
    """Return how many attempts fit the limits on their work and on their answers' bytes."""
    weights = sum(p.nbytes for p in eager.module.parameters())
    answer = 1 + 2 * sum(value.nbytes for value in case.outputs.values())
    by_work = _WORK / (work * (_IN_FLOAT64 if wide else 1.0))
    fewest = _FEW if work <= _CHEAP else _FEWEST
    return max(fewest, int(min(by_work, max(_BYTES, weights / 10) / answer)))


def _elements(tensors: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())


def _work(run: Call, case: GoldenCase) -> float:
    with FlopCounterMode(display=False) as counter:
        run_exactly(run, case.inputs)
    elements = _elements(case.inputs) + _elements(case.outputs)
    return float(counter.get_total_flops()) + _OF_AN_ELEMENT * elements


def _indices(eager: Eager, signature: Signature, case: GoldenCase) -> dict[str, list[int]]:
    """Return -1, the largest index that eager takes, and the next, for each input of integers."""
    known = [*case.inputs.values(), *eager.module.parameters(), *eager.module.buffers()]
    # Tensors made during a call are assumed to have no sizes beyond these.
    known += case.outputs.values()
    sizes = sorted({size for t in known for size in t.shape}, reverse=True)[:_MOST_SIZES]
    found = {}
    for spec in signature.inputs:
        if spec.dtype in {Dtype.INT32, Dtype.INT64}:
            given = (
                (n, {**case.inputs, spec.name: torch.full_like(case.inputs[spec.name], n - 1)})
                for n in sizes
            )
            taken = next((n for n, inputs in given if not _run(eager.first, inputs)[1]), 0)
            found[spec.name] = [-1, taken - 1, taken] if taken else [-1]
    return found


def _run(call: Call, inputs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], str]:
    """Return eager's outputs, or its message if it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run_exactly(call, inputs), ""
        except Exception as error:  # noqa: BLE001 - it may raise anything
            return {}, " ".join(str(error).split())[:_TEXT] or type(error).__name__


class _Shaken(EagerMode):  # type: ignore[no-untyped-call]
    """A mode that changes the last bit of results whose rounding depends on order, or keeps it.

    The effect shows how far two correct programs may differ (D. Stott Parker, Monte Carlo
    Arithmetic, 1997).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._chance = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute the requested call, and round its result again."""
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "overloadpacket", func).__name__
        if name in {"_fft_r2c", "_fft_c2c"}:
            return self._transformed(found)
        return tree_map(self._rounded, found) if name in _ROUNDED else found

    def _transformed(self, value: Tensor) -> Tensor:
        """Round an element of a Fourier transform, whose error scales with all of them."""
        planes = torch.view_as_real(value.resolve_conj())
        size = planes.double().square().mean().sqrt().to(planes.dtype).expand_as(planes)
        return torch.view_as_complex(planes + self._rounded(size) - size)

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        by = torch.randint(-1, 2, value.shape, generator=self._chance).to(value.dtype)
        return value + value * (by * torch.finfo(value.dtype).eps)


def _answer(
    run: Call, wide: Call | None, inputs: Mapping[str, Tensor], kind: Kind
) -> tuple[dict[str, Tensor], str]:
    """Return eager's outputs and its doubts about them, or its message if it refuses."""
    outputs, raises = _run(run, inputs)
    lost = kind in _OF_NAN and all(bool(value.isnan().all()) for value in outputs.values())
    # A second call has the golden case's inputs
    doubtful = not (raises or lost or kind is Kind.SECOND_CALL)
    exact = _run(wide, inputs)[0] if wide and doubtful else {}
    shaken: Mapping[str, Tensor] = {}
    if kind in _EVEN and not raises:
        with _Shaken():
            shaken = _run(run, inputs)[0]
    found = {f"output/{name}": plain(value.detach()) for name, value in outputs.items()}
    for name, value in outputs.items():
        sure = exact.get(name, value).detach()
        doubt = _doubt(value.detach(), sure)
        if name in shaken:
            more = _doubt(shaken[name].detach(), sure)
            doubt = torch.where(more.isfinite() & doubt.isfinite(), doubt.maximum(more), doubt)
        if doubt.any():
            found[f"doubt/{name}"] = plain(doubt)
    return found, raises


def _doubt(value: Tensor, exact: Tensor) -> Tensor:
    """Return |value - exact| in float32; infinite if they differ in kind, such as NaN and 0."""
    if value.shape != exact.shape:
        return torch.full(value.shape, torch.inf)
    left, right = value.double(), exact.to(value.dtype).double()
    same = (left == right) | (left.isnan() & right.isnan())
    apart = torch.where(left.isfinite() & right.isfinite(), (left - right).abs(), torch.inf)
    return torch.where(same, 0.0, apart if value.is_floating_point() else torch.inf).float()
