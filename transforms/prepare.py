"""A program made ready for the passes: golden cases from eager, then the export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.exact import exact_outputs
from transforms.export import CallableProgram, Exported, export_program
from transforms.golden import GoldenCase, make_goldens, model_dtype
from transforms.state import from_first_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from transforms.calibration import Range
    from zoo.spec import ProgramSpec

__all__ = ["Prepared", "called_as", "prepare"]


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


def prepare(
    model: torch.nn.Module, spec: ProgramSpec, real: Mapping[str, torch.Tensor] | None = None
) -> Prepared:
    """Make the golden cases of one program, and export it with the first as example.

    Args:
        model: the whole model, in eval mode; float inputs take the dtype of its parameters.
        spec: the program.
        real: inputs of the last golden case, where the entry has samples.

    Raises:
        ExportError: if eager fails on a case or the program cannot be exported.
    """
    goldens = make_goldens(model, spec, dtype=model_dtype(model), real=real)
    exported = export_program(model, spec, goldens[0].inputs)
    if not exported.state:
        exact = exact_outputs(model, goldens, lambda wide: called_as(wide, spec))
        return Prepared(spec.name, exported, goldens, called_as(model, spec), exact=exact)
    goldens = make_goldens(model, spec, dtype=model_dtype(model), calls=spec.calls)
    module = CallableProgram(model, spec)
    eager = from_first_state(module, module)
    return Prepared(
        spec.name, exported, goldens, lambda inputs: eager(*inputs.values()), spec.calls
    )
