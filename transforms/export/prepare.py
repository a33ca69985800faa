"""A program made ready for the passes: golden cases from eager, then the export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from menagerie.validation.findings import CaseKind
from transforms.export.beside import beside
from transforms.export.state import from_first_state
from transforms.export.trace import CallableProgram, Exported, export_program, without_fast_path
from transforms.goldens.cases import (
    GoldenCase,
    check_shapes,
    first_inputs,
    make_goldens,
    model_dtype,
)
from transforms.goldens.exact import exact_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from transforms.calibration import Range
    from zoo.spec import ProgramSpec

T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """An exported program with its golden cases; `eager` runs the original on inputs by name.

    Golden cases of a program with state are runs of `calls` calls; `eager` is the first of a run.
    """

    name: str
    exported: Exported
    goldens: list[GoldenCase]
    eager: Callable[[dict[str, torch.Tensor]], object]
    calls: int = 1
    exact: dict[str, torch.Tensor] = field(default_factory=dict)  # float64, by golden tensor
    operand_ranges: dict[str, Range] = field(default_factory=dict)  # if static, by parameter


def called_as(
    model: torch.nn.Module, spec: ProgramSpec
) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """A program of a model as a function of its inputs, by name and in the spec's order."""
    module = CallableProgram(model, spec)

    def call(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        outputs: dict[str, torch.Tensor] = module(*inputs.values())
        return outputs

    return call


@without_fast_path()
def prepare(
    model: torch.nn.Module,
    spec: ProgramSpec,
    real: Mapping[str, torch.Tensor] | None = None,
    *,
    forks: bool = False,
) -> Prepared:
    """Make the golden cases of one program, and export it with the inputs of the first.

    Args:
        model: the whole model, in eval mode; float inputs take the dtype of its parameters.
        spec: the program.
        real: inputs of the last golden case, where the entry has samples.
        forks: make the golden cases in a fork while it is exported; see `transforms.export.beside`.

    Raises:
        ExportError: if eager fails on a case or the program cannot be exported.
    """
    dtype = model_dtype(model)

    def goldens() -> tuple[list[GoldenCase], dict[str, torch.Tensor]]:
        cases = make_goldens(model, spec, dtype=dtype, real=real)
        return cases, exact_outputs(model, cases, lambda wide: called_as(wide, spec))

    made = beside(goldens, (GoldenCase, CaseKind)) if forks else _at_once(goldens)
    try:
        exported = export_program(model, spec, first_inputs(spec, dtype, real))
    finally:
        cases, exact = made()  # where eager itself fails, that says more than the export's failure
    check_shapes(f"program {spec.name}", exported.signature, cases)
    if not exported.state:
        return Prepared(spec.name, exported, cases, called_as(model, spec), exact=exact)
    cases = make_goldens(model, spec, dtype=dtype, calls=spec.calls)
    module = CallableProgram(model, spec)
    eager = from_first_state(module, module)
    return Prepared(spec.name, exported, cases, lambda inputs: eager(*inputs.values()), spec.calls)


def _at_once(work: Callable[[], T]) -> Callable[[], T]:
    done = work()
    return lambda: done
