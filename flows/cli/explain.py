"""`zoo explain`."""

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
from flows.cli.output import emit, messages, results, table

if TYPE_CHECKING:
    from transforms.explain import PassExplanation, ProgramExplanation

__all__ = ["explain"]


def explain(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    random_weights: SeedOption = None,
    allow_factories: FactoriesOption = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the first program's graph as SVG.")
    ] = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say for each graph pass what it changes in a model, what it refuses and why.

    Examples: `zoo explain resnet18 --random-weights 0` ·
    `zoo explain convnext_tiny --random-weights 0 --picture graph.svg`
    """
    with messages().status(f"exporting {model}"):
        from flows.cli.modelling import prepare_model
        from transforms.explain import Explanation, explain_program
        from transforms.pipeline import passes_in

        prepared = prepare_model(model, manifest, random_weights, allow_factories=allow_factories)
        passes = passes_in(prepared.spec.kept, prepared.spec.passes, target)
        explained = [
            (p, *explain_program(p.name, p.exported.program, passes, target=target))
            for p in prepared.programs
        ]
    if picture is not None:
        from transforms.graph.record import record_graph
        from zoo.report.graphs import picture as draw

        first, rewritten, _ = explained[0]
        before, after = record_graph(first.exported.program), record_graph(rewritten)
        picture.write_text(draw(before, after, title=f"{model}, before and after the passes"))
    explanation = Explanation(model=model, target=target, programs=tuple(e for *_, e in explained))
    if as_json:
        emit(explanation.model_dump(mode="json"))
        return
    for program in explanation.programs:
        _print_program(program)
    if picture is not None:
        results().print(f"picture  {picture}", markup=False)


def _print_program(program: "ProgramExplanation") -> None:
    console = results()
    console.print(
        f"[bold]{program.program}[/bold]  {program.nodes_before} nodes, {program.nodes_after} after"
    )
    shown = table(
        "pass", "changes", "refusals", "nodes", "operators", right=("changes", "refusals")
    )
    for entry in program.passes:
        record = entry.record
        shown.add_row(
            record.name,
            str(len(record.changes)) if record.modified else "–",  # noqa: RUF001
            str(len(record.refusals) or "–"),  # noqa: RUF001
            f"{record.nodes_before} → {record.nodes_after}",
            _operators(entry),
        )
    console.print(shown)
    for entry in program.passes:
        for refusal in entry.record.refusals:
            console.print(
                f"  {entry.record.name} left {refusal.node}: {refusal.reason}", markup=False
            )


def _operators(entry: "PassExplanation") -> str:
    most = [f"{o.operator} {o.before}→{o.after}" for o in entry.operators[:3]]
    return ", ".join(most)
