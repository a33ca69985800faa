"""Inspection of a model's graph: the effect of each pass, and where a lowered model diverges."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    ManifestOption,
    ModelArgument,
    SeedOption,
    TargetOption,
)
from flows.cli.output import answer, messages, table
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from transforms.export.prepare import Prepared
    from transforms.pipeline import PassExplanation, ProgramExplanation
    from zoo.records import Diagnosis, Divergence
    from zoo.spec import ModelSpec


def explain(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    random_weights: SeedOption = None,
    allow_factories: FactoriesOption = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the first program's graph as a page.")
    ] = None,
    manifest: ManifestOption = None,
) -> None:
    """Say for each graph pass what it changes in a model, what it refuses and why.

    **Examples**

    - `zoo debug explain resnet18 --random-weights 0`
    - `zoo debug explain convnext_tiny --random-weights 0 --picture graph.html`
    """
    with messages().status(f"exporting {model}"):
        from transforms.pipeline import Explanation, explain_program, passes_in

        spec, prepared = prepare_model(
            model, manifest, random_weights, allow_factories=allow_factories
        )
        names = [p.program.state_dict for p in prepared]
        explained = []
        for p, own in zip(prepared, names, strict=True):
            passes = passes_in(spec.kept.within(own, names), spec.passes, target)
            told = explain_program(p.name, p.program, passes, target=target, exported=p.passes)
            explained.append((p, *told))
    explanation = Explanation(model=model, target=target, programs=tuple(e for *_, e in explained))
    shown = [line for program in explanation.programs for line in _shown_program(program)]
    if picture is not None:
        from transforms.graph.record import record_graph
        from zoo.records import ProgramGraphs
        from zoo.report.page import render_graph

        first, rewritten, _ = explained[0]
        graphs = ProgramGraphs(
            program=first.name, before=record_graph(first.program), after=record_graph(rewritten)
        )
        picture.write_text(render_graph(graphs, f"{model}, before and after the passes"))
        shown.append(f"picture  {picture}")
    answer(explanation.model_dump(mode="json"), *shown)


def _shown_program(program: "ProgramExplanation") -> "Iterator[RenderableType]":
    from rich.text import Text

    counts = f"  {program.nodes_before} nodes, {program.nodes_after} after"
    yield Text(program.program, style="bold").append(counts, style="not bold")
    columns = ("pass", "changes", "refusals", "nodes", "operators")
    yield table(*columns, rows=map(_cells, program.passes), right=("changes", "refusals"))
    for entry in program.passes:
        for refusal in entry.record.refusals:
            yield f"  {entry.record.name} left {refusal.node}: {refusal.reason}"
    if program.refusal:
        yield f"  {program.refusal}"
    if kinds := program.dispatches:
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        yield f"  dispatches: {sum(kinds.values())} ({listed})"


def _cells(entry: "PassExplanation") -> tuple[str, ...]:
    record = entry.record
    return (
        record.name,
        str(len(record.changes)) if record.modified else "–",  # noqa: RUF001
        str(len(record.refusals) or "–"),  # noqa: RUF001
        f"{record.nodes_before} → {record.nodes_after}",
        ", ".join(f"{o.operator} {o.before}→{o.after}" for o in entry.operators[:3]),
    )


def bisect(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    program: Annotated[str | None, typer.Option(help="Program to search. Default: all.")] = None,
    random_weights: SeedOption = None,
    allow_factories: FactoriesOption = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the small program.")
    ] = Path("divergence"),
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Longest search; what is known then is shown.")
    ] = None,
    manifest: ManifestOption = None,
) -> None:
    """Find the first node, and the pass, at which a lowered model diverges from eager.

    Looks at every golden case, since a fault may show at one size only. Saves a small program
    that still shows it, with its command. Exit code 1 if it diverges, or no place is found in time.

    **Examples**

    - `zoo debug bisect resnet18 --random-weights 0`
    - `zoo debug bisect resnet18 -o found --json`
    """
    with messages().status(f"looking for a divergence in {model}"):
        from transforms.bisect import diagnose
        from transforms.targets import Settings, target_named

        spec, prepared = prepare_model(
            model, manifest, random_weights, allow_factories=allow_factories
        )
        names = [p.name for p in prepared]
        if program is not None and program not in names:
            fact = f"there is no program {program!r}"
            raise UsageError("zoo debug bisect", fact, f"It has: {', '.join(names)}")
        programs = [p for p in prepared if program in (None, p.name)]
        found = diagnose(
            {each.name: each for each in programs},
            [(each.name, None) for each in programs],
            Settings(
                target=target_named(target),
                passes=spec.passes,
                kept=spec.kept,
                tolerances=spec.own_tolerances,
            ),
            folder=output,
            seconds=math.inf if seconds is None else seconds,
        )
    if found.divergence is None:
        cases = sum(len(entry.goldens) // entry.calls for entry in programs)
        text = f"{model} agrees with eager at every output of {cases} golden case(s)"
        if any(entry.calls > 1 for entry in programs):
            text += ", in the first call after a reset; later calls are not searched"
        answer(None, text)
        return
    fields = _fields(found, found.divergence)
    shown = {**fields, "rerun": found.divergence.command}
    lines = (f"{name:<12} {value}" for name, value in shown.items())
    answer(fields, *lines, succeeded=False)


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


def prepare_model(
    model: str, manifest: Path | None, random_weights: int | None, *, allow_factories: bool
) -> "tuple[ModelSpec, tuple[Prepared, ...]]":
    """Load a model and export its programs; return its entry and the programs before any pass.

    Raise UsageError if the manifest has no such model, SourceError if its weights cannot be loaded,
    ExportError if a program cannot be exported.
    """
    from transforms.export.prepare import prepare
    from transforms.goldens.entry import real_sample
    from transforms.targets import all_targets
    from zoo import sources
    from zoo.manifest import load_manifest
    from zoo.sources.context import Context
    from zoo.sources.fingerprint import seed_used

    entries = load_manifest(manifest, targets=all_targets())
    spec = entries.spec(model)
    origin = entries.origins[model].file
    loaded = sources.load(
        model,
        spec,
        origin=origin,
        random_weights=seed_used(spec, random_weights),
        allow_factories=allow_factories,
    )
    context = Context(model, origin.parent)
    return spec, tuple(
        prepare(loaded.module, program, real_sample(spec, program, context))
        for program in spec.programs
    )
