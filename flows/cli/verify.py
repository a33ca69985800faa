"""`zoo verify`."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.bundles import bundle_at
from flows.cli.options import (
    JsonOption,
    StoreOption,
    UnsignedOption,
    complete_models,
    complete_targets,
    known_target,
    store_url,
)
from flows.cli.output import emit, figure, messages, results, table
from menagerie.figures import count, decibels, error, milliseconds, size
from zoo.errors import UsageError

if TYPE_CHECKING:
    from tasks.verify import Proof
    from zoo.records import ValidationReport
    from zoo.store import Release

__all__ = ["verify"]

_PASSED = {"bits": "bit-equal", "absolute": "by max abs", "snr": "by SNR"}


def verify(
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|MODEL",
            help="A bundle's folder or zip file, or the name of a published model.",
            autocompletion=complete_models,
        ),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="The latest release of every model and target.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Default: cpu; with --all: each there is.",
            callback=known_target,
            autocompletion=complete_targets,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads to run with.")] = 1,
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove an artifact on this machine: its golden cases in a fresh process, without PyTorch.

    **Examples**

    - `zoo verify out`
    - `zoo verify resnet18 --json`
    - `zoo verify --all --store s3://models/zoo`
    """
    if everything != (bundle is None):
        raise UsageError("zoo verify", "takes a bundle or a model, or --all", "Give one of them")
    if bundle is None:
        targets = () if target is None else (target,)
        _verify_all(store_url(store), targets, threads, as_json=as_json)
        return
    from menagerie.typed_json import plain
    from menagerie.validation import Limits, validate

    with (
        bundle_at(bundle, target or "cpu", store_url(store)) as folder,
        messages().status(f"running the golden cases of {bundle}"),
    ):
        report = validate(folder, limits=Limits(threads=threads))
    if as_json:
        emit(plain(report))
    else:
        _print(report)
    if not report.passed:
        raise typer.Exit(1)


def _verify_all(store: str, targets: tuple[str, ...], threads: int, *, as_json: bool) -> None:
    from flows.proofs import verify_all
    from flows.work import new_work_folder
    from tasks.verify import verify_release

    def prove(release: "Release") -> "Proof":
        messages().print(f"{release.model} for {release.target}", markup=False)
        folder = new_work_folder(f"verify-{release.model}-{release.target}")
        return verify_release(store, release, folder, threads=threads)

    result = verify_all(store, (), targets, prove, every_build=False)
    if as_json:
        emit(result.model_dump(mode="json"))
    else:
        shown = table("model", "target", "verdict", "latency", "why", right=("latency",))
        for proof in result.proofs:
            latency = figure(proof.latency_ms, milliseconds)
            shown.add_row(proof.model, proof.target, proof.outcome.value, latency, proof.detail)
        results().print(shown)
        results().print(result.summary)
    if not result.succeeded:
        raise typer.Exit(1)


def _print(report: "ValidationReport") -> None:
    shown = table(
        "program", "case", "output", "max abs", "SNR", "passed", right=("case", "max abs", "SNR")
    )
    for program in report.programs:
        for parity in program.parity:
            shown.add_row(
                program.program,
                str(parity.case),
                parity.output,
                error(parity.max_abs),
                decibels(parity.snr_db),
                "[red]no[/red]" if parity.passed_by is None else _PASSED[parity.passed_by],
            )
    from rich.markup import escape

    console = results()
    console.print(shown)
    for program in report.programs:
        if program.latency is not None:
            console.print(
                f"{program.program}: {milliseconds(program.latency.median_ms)} median on "
                f"{count(program.latency.threads, 'thread')}"
            )
    console.print(
        f"load {figure(report.load_ms, milliseconds)}, "
        f"memory {figure(report.peak_memory_bytes, size)}"
    )
    if report.passed:
        where = " on an emulated device" if report.emulated else ""
        console.print(f"[green]verified[/green]{where}")
    else:
        console.print(f"[red]{report.verdict}[/red]: {escape(report.detail)}")
