"""What a program gives in float64: the truth beside which eager and artifact are measured.

It is that of the case that looks like data, which has the smallest sizes that show something; of
the first where none does.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from menagerie.validation.findings import CaseKind
from transforms.graph.layouts import plain
from zoo.sources.random_weights import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from transforms.goldens.cases import GoldenCase

    Call = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]

_LIFELIKE = frozenset({CaseKind.PICTURE, CaseKind.SPEECH, CaseKind.SAMPLE})
_MOST_PARAMETERS = 200_000_000  # their float64 copy takes 1.6 GB
_MOST_BYTES = 2**24  # of an output that a bundle carries for this
_LEAST_SNR = 1e3  # eager's norm over its error: below it the float64 model is another one


def exact_outputs(
    model: torch.nn.Module, cases: Sequence[GoldenCase], call: Callable[[torch.nn.Module], Call]
) -> dict[str, torch.Tensor]:
    """The outputs of one golden case with weights, inputs and arithmetic in float64.

    Args:
        model: in float32; not changed.
        cases: all; the floating inputs of one are widened, so both see the same numbers.
        call: how the program, which keeps no state, is called; given the model in float64.

    Returns:
        Float64 outputs by their names in the golden file. Left out is what the model does not
        allow: one that is large or fails in float64; an output that is not floating, stays float32,
        or differs from eager's by more than a thousandth, since something in the model then depends
        on the dtype.
    """
    number = next((n for n, case in enumerate(cases) if case.kind in _LIFELIKE), 0)
    case = cases[number]
    if sum(p.numel() for p in model.parameters()) > _MOST_PARAMETERS:
        return {}
    if any(v.dtype not in (torch.float32, torch.float64) for v in _floating(case.inputs)):
        return {}
    try:
        run = call(copy.deepcopy(model).double())
        wide = {n: v.double() if v.is_floating_point() else v for n, v in case.inputs.items()}
        with torch.no_grad(), one_thread():
            found = run({name: value.clone() for name, value in wide.items()})
    except Exception:  # noqa: BLE001 - whatever a model has against float64, there is no truth then
        return {}
    truth = {name: value.detach() for name, value in found.items()}  # a parameter may be an output
    return {
        f"{number}/exact/{name}": plain(value)
        for name, value in truth.items()
        if _tells(value, case.outputs[name].detach())
    }


def _floating(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return [value for value in tensors.values() if value.is_floating_point()]


def _tells(exact: torch.Tensor, eager: torch.Tensor) -> bool:
    if exact.dtype is not torch.float64 or exact.nbytes > _MOST_BYTES:
        return False
    if exact.shape != eager.shape or not bool(exact.isfinite().all()):
        return False
    return float((exact - eager.double()).norm()) * _LEAST_SNR <= float(exact.norm())
