"""`zoo bisect`."""

import time
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
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flows.cli.modelling import PreparedModel
    from transforms.export.prepare import Prepared
    from zoo.records import Diagnosis, Divergence
    from zoo.spec import ModelSpec

__all__ = ["bisect"]


def bisect(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
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

    Looks at every golden case, for a fault may show at one size only. Saves the smallest program
    that still shows it, with the command that runs it again. Exit code 1 if there is a divergence.

    Examples: `zoo bisect resnet18 --random-weights 0` · `zoo bisect resnet18 -o found --json`
    """
    with messages().status(f"looking for a divergence in {model}") as status:
        from flows.cli.modelling import prepare_model

        prepared = prepare_model(model, manifest, random_weights, allow_factories=allow_factories)
        programs = _chosen(prepared, program)
        found = _first(prepared.spec, programs, target, output, seconds=seconds, tell=status.update)
    if found is None or found.divergence is None:
        if as_json:
            emit(None)
        else:
            cases = sum(len(entry.goldens) // entry.calls for entry in programs)
            text = f"{model} agrees with eager at every output of {cases} golden case(s)"
            if any(entry.calls > 1 for entry in programs):
                text += ", in the first call after a reset; later calls are not searched"
            results().print(text, markup=False)
        return
    fields = _fields(found, found.divergence)
    if as_json:
        emit(fields)
    else:
        for name, value in fields.items():
            results().print(f"{name:<12} {value}", markup=False)
        results().print(f"rerun        {found.divergence.command}", markup=False)
    raise typer.Exit(1)


def _chosen(prepared: "PreparedModel", program: str | None) -> "list[Prepared]":
    names = [p.name for p in prepared.programs]
    if program is not None and program not in names:
        fact = f"there is no program {program!r}"
        raise UsageError("bisect", fact, f"It has: {', '.join(names)}")
    return [p for p in prepared.programs if program in (None, p.name)]


def _first(
    spec: "ModelSpec",
    programs: "Sequence[Prepared]",
    target: str,
    output: Path,
    *,
    seconds: float | None,
    tell: "Callable[[str], None]",
) -> "Diagnosis | None":
    """Search with every golden case, since a fault may show at one size only.

    Of a program that keeps state, with the first call of each: it is what the search can run.

    Raises:
        MenagerieError: the time was up before every case had been looked at, and none was wrong.
    """
    from transforms.bisect import locate
    from transforms.pipeline import make_passes, passes_in
    from zoo.records import Diagnosis

    end = None if seconds is None else time.monotonic() + seconds
    for entry in programs:
        for number, case in enumerate(entry.goldens):
            if number % entry.calls:
                continue  # a later call of a run: the search begins with the first state
            tell(f"program {entry.name}, case {number}: looking for a divergence")
            found = locate(
                entry.exported.program,
                make_passes(passes_in(spec.kept, spec.passes, target), target=target),
                list(case.inputs.values()),
                target=target,
                tolerances=spec.tolerance,
                folder=output,
                seconds=None if end is None else end - time.monotonic(),
            )
            if found is not None:
                return Diagnosis(program=entry.name, case=number, divergence=found)
    return None


def _fields(found: "Diagnosis", divergence: "Divergence") -> dict[str, object]:
    return {
        "program": found.program,
        "case": found.case,
        "stage": divergence.stage.value,
        "pass": divergence.pass_name,
        "node": divergence.node,
        "operator": divergence.operator,
        "module": divergence.module_path,
        "source": divergence.source_line,
        "max_abs": divergence.max_abs,
        "snr_db": divergence.snr_db,
        "certain": divergence.certain,
        "reproducer": None if divergence.reproducer is None else str(divergence.reproducer),
    }
