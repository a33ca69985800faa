"""Eager PyTorch's answers to what tries to refute a program (`menagerie.validation.refuting`).

How much is tried depends on the program's work alone, so that two machines make the same file.
"""

from __future__ import annotations

import copy
import faulthandler
import signal
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.utils.flop_counter import FlopCounterMode

from menagerie.numerics import Dtype
from menagerie.validation.refuting import SPECIAL, Attempt, Kind, Plan, attempts
from transforms.goldens.cases import run_exactly
from transforms.graph.layouts import as_array, as_tensor, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

    from transforms.goldens.cases import GoldenCase
    from transforms.graph.call_signature import Call, Eager, Signature

Answers = tuple[Plan, dict[str, torch.Tensor]]

_WORK = 6e9  # FLOPs of eager for all attempts: some 0.3 s of one core
_FEWEST = 2  # attempts, whatever they cost, up to ...
_MOST_WORK = 1e11  # ... FLOPs of a call
_OF_AN_ELEMENT = 100.0  # FLOPs that one of an input or an output stands for
_IN_FLOAT64 = 3.0  # times the work: float64 takes twice as long as float32
_BYTES = 2**20  # of all answers; a tenth of the weights where that is more
_SECONDS = 60  # after which an eager that hangs is ended
_MOST_SIZES = 6  # that are tried as indices
_TEXT = 200  # characters of what eager says

# Operators whose results of NaN, infinities and extremes docs/special-values.md lists.
LISTED = (
    "addcdiv", "addcmul", "digamma", "fmod", "ldexp", "lgamma", "nextafter", "pow", "remainder",
    "zeta", "adaptive_max_pool", "upsample_", "grid_sampler", "hardswish",
    "binary_cross_entropy", "var", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "_fft_", "fft_", "stft", "multi_margin_loss", "cholesky_inverse",
    "histc", "mode", "chebyshev_polynomial_w", "legendre_polynomial_p",
)  # fmt: skip
# What has NaN where eager has other elements, by a part of the operator's name.
_SPREADS = {
    "conv": "Winograd's algorithm spreads NaN (docs/special-values.md)",
    "scaled_dot_product": "eager's attention loses NaN (docs/special-values.md)",
}
# What sums products, by a part of the operator's name.
_PRODUCTS = ("conv", "linear", "mm", "matmul", "einsum", "attention", "lstm", "gru", "rnn")
_ORDER = "sums of products overflow by their order (docs/special-values.md)"


def excuses(program: ExportedProgram) -> dict[str, str]:
    """Return reasons of a program's plan by their names, by the operators that it calls."""
    nodes = list(program.graph.nodes)
    called = [str(node.target).removeprefix("aten.").removeprefix("special_") for node in nodes]
    # A function that export has written out: `function.multi_margin_loss`.
    called += [str(node.meta.get("torch_fn", ("", ""))[1]).split(".")[-1] for node in nodes]
    listed = [each for each in LISTED if any(name.startswith(each) for name in called)]
    found = ", ".join([*listed, *["floats as integers"] * any(map(_is_cast_to_integers, nodes))])
    special = f"docs/special-values.md lists {found}" if found else ""
    spreads = (why for part, why in _SPREADS.items() if any(part in name for name in called))
    order = _ORDER * any(part in name for name in called for part in _PRODUCTS)
    return {"special": special, "spread": next(spreads, ""), "order": order}


def _is_cast_to_integers(node: torch.fx.Node) -> bool:
    """Return whether a node makes integers of floats, of which NaN and others have no integer."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes[:1])]
    dtypes = [value.dtype for value in values if isinstance(value, torch.Tensor)]
    is_cast = "to" in str(node.target).removeprefix("aten.").split(".")[0].split("_")
    kinds = [dtype.is_floating_point for dtype in dtypes]
    return is_cast and kinds == [False, True] and dtypes[0] is not torch.bool


def answers(
    eager: Eager,
    signature: Signature,
    goldens: Sequence[GoldenCase],
    *,
    has_state: bool,
    excuses: Mapping[str, str],
    ends: bool = True,
) -> Answers | None:
    """Compute what eager says to each attempt, in a process that may be lost.

    The golden case with the fewest elements is changed. With `has_state` each attempt begins at the
    first state, and a second call is a golden case; without `ends` integers get no other values, at
    which eager may end the process. The tensors are named as `menagerie.validation.refuting.refute`
    reads them; None if a call costs too much.
    """
    faulthandler.disable()  # the fork's end is no fault of the caller
    signal.alarm(_SECONDS)
    number = min(range(len(goldens)), key=lambda n: _elements(goldens[n].inputs))
    case = goldens[number]
    work = _work(eager.first, case)
    if work > _MOST_WORK:
        return None
    wide = _in_float64(eager) if work * 2 * _IN_FLOAT64 <= _WORK else None
    indices = _indices(eager, signature, case) if work * 100 <= _WORK and ends else {}
    base = {name: as_array(value) for name, value in case.inputs.items()}
    left_out = {Kind.SECOND_CALL} if has_state else set[Kind]()
    left_out |= {Kind.TINY} if wide is None else set()  # whose results rounding may lose
    plan, tensors = list[Attempt](), dict[str, torch.Tensor]()
    for attempt in attempts(signature.inputs, indices)[: _most(eager, case, work, wide)]:
        if (attempt.input and not ends) or attempt.kind in left_out:
            continue
        changed = attempt.inputs(base, signature.inputs)
        given = {name: as_tensor(value, case.inputs[name]) for name, value in changed.items()}
        found, raises = _answer(eager.first if has_state else eager, wide, given)
        tensors |= {f"{len(plan)}/{name}": value for name, value in found.items()}
        plan.append(replace(attempt, raises=raises))
    ordinary = [n for n, tried in enumerate(plan) if tried.kind not in SPECIAL and not tried.raises]
    known = [each.outputs for each in goldens]
    known += [{name: tensors[f"{n}/output/{name}"] for name in case.outputs} for n in ordinary]
    constant = tuple(name for name in case.outputs if _is_constant([k[name] for k in known]))
    return Plan(golden=number, attempts=tuple(plan), constant=constant, **excuses), tensors


def _is_constant(outputs: Sequence[torch.Tensor]) -> bool:
    """Return whether all are equal, or made of one number."""
    values = torch.cat([each.flatten() for each in outputs])
    same = len(outputs) > 1 and all(torch.equal(outputs[0], each) for each in outputs[1:])
    return same or bool((values == values[:1]).all())


def _most(eager: Eager, case: GoldenCase, work: float, wide: Call | None) -> int:
    """Return how many attempts their work and their answers' bytes allow."""
    weights = sum(p.nbytes for p in eager.module.parameters())
    answer = 1 + 2 * sum(value.nbytes for value in case.outputs.values())
    by_work = _WORK / (work * (_IN_FLOAT64 if wide else 1.0))
    return max(_FEWEST, int(min(by_work, max(_BYTES, weights / 10) / answer)))


def _elements(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())


def _work(run: Call, case: GoldenCase) -> float:
    with FlopCounterMode(display=False) as counter:
        run_exactly(run, case.inputs)
    elements = _elements(case.inputs) + _elements(case.outputs)
    return float(counter.get_total_flops()) + _OF_AN_ELEMENT * elements


def _in_float64(eager: Eager) -> Call | None:
    try:
        return replace(eager, module=copy.deepcopy(eager.module).double()).first
    except Exception:  # noqa: BLE001 - whatever a model has against it
        return None


def _indices(eager: Eager, signature: Signature, case: GoldenCase) -> dict[str, list[int]]:
    """Return -1, the largest index that eager takes, and the next, for each input of integers."""
    tensors = [*case.inputs.values(), *eager.module.parameters()]
    sizes = sorted({size for t in tensors for size in t.shape[:2]}, reverse=True)[:_MOST_SIZES]
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


def _run(call: Call, inputs: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], str]:
    """Return what eager answers, or what it says where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run_exactly(call, inputs), ""
        except Exception as error:  # noqa: BLE001 - it may raise anything
            return {}, " ".join(str(error).split())[:_TEXT] or type(error).__name__


def _answer(
    run: Call, wide: Call | None, inputs: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str]:
    """Return eager's outputs and its doubts about them, or what it says where it refuses."""
    outputs, raises = _run(run, inputs)
    exact: Mapping[str, torch.Tensor] = {}
    if wide is not None and not raises:
        floats = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of what forward makes, such as torch.eye(n)
        exact = _run(wide, floats)[0]
        torch.set_default_dtype(default)
    found = {f"output/{name}": plain(value.detach()) for name, value in outputs.items()}
    for name, value in outputs.items():
        if name in exact and (doubt := _doubt(value.detach(), exact[name].detach())).any():
            found[f"doubt/{name}"] = plain(doubt)
    return found, raises


def _doubt(value: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Return |value - exact| in float32; infinite where they are of different kinds."""
    if value.shape != exact.shape:
        return torch.full(value.shape, torch.inf)
    left, right = value.double(), exact.to(value.dtype).double()
    same = (left == right) | (left.isnan() & right.isnan())
    apart = torch.where(left.isfinite() & right.isfinite(), (left - right).abs(), torch.inf)
    return torch.where(same, 0.0, apart if value.is_floating_point() else torch.inf).float()
