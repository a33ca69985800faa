"""`zoo bisect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    JsonOption,
    ManifestOption,
    ModelArgument,
    SeedOption,
    TargetOption,
)
from flows.cli.output import emit, messages, results
from zoo.spec import Target

if TYPE_CHECKING:
    from flows.cli.modelling import PreparedModel
    from zoo.evidence import Divergence

__all__ = ["bisect"]


def bisect(
    model: ModelArgument,
    *,
    target: TargetOption = Target.CPU,
    program: Annotated[str | None, typer.Option(help="Default: every program in turn.")] = None,
    random_weights: SeedOption = None,
    allow_factories: FactoriesOption = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where a reproducer is saved.")
    ] = Path("divergence"),
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Make do with what is known after so many.")
    ] = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the first node, and the pass, at which a lowered model diverges from eager.

    Saves the smallest program that still shows it, with the command that runs it again. Exit code 1
    if there is a divergence.

    Examples: `zoo bisect resnet18 --random-weights 0` · `zoo bisect resnet18 -o found --json`
    """
    with messages().status(f"looking for a divergence in {model}"):
        from flows.cli.modelling import prepare_model

        prepared = prepare_model(model, manifest, random_weights, allow_factories=allow_factories)
        found = _first(prepared, target, program, output, seconds)
    if as_json:
        emit(None if found is None else _fields(found))
    elif found is None:
        results().print(f"{model} agrees with eager at every output", markup=False)
    else:
        for name, value in _fields(found).items():
            results().print(f"{name:<12} {value}", markup=False)
        results().print(f"rerun        {found.command}", markup=False)
    raise typer.Exit(0 if found is None else 1)


def _first(
    prepared: "PreparedModel",
    target: Target,
    program: str | None,
    output: Path,
    seconds: float | None,
) -> "Divergence | None":
    from transforms.bisect import locate
    from transforms.pipeline import make_passes
    from zoo.errors import UsageError

    names = [p.spec.name for p in prepared.programs]
    if program is not None and program not in names:
        raise UsageError(
            "bisect", f"there is no program {program!r}", f"It has: {', '.join(names)}"
        )
    for entry in prepared.programs:
        if program in (None, entry.spec.name):
            found = locate(
                entry.exported.program,
                make_passes(prepared.spec.passes, target=target),
                list(entry.goldens[0].inputs.values()),
                target=target,
                tolerances=prepared.spec.tolerance,
                folder=output,
                seconds=seconds,
            )
            if found is not None:
                return found
    return None


def _fields(found: "Divergence") -> dict[str, object]:
    return {
        "stage": found.stage.value,
        "pass": found.pass_name,
        "node": found.node,
        "operator": found.operator,
        "module": found.module_path,
        "source": found.source_line,
        "max_abs": found.max_abs,
        "snr_db": found.snr_db,
        "certain": found.certain,
        "reproducer": None if found.reproducer is None else str(found.reproducer),
    }
