"""`zoo bench`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption, UnsignedOption
from flows.cli.output import emit, results, table

if TYPE_CHECKING:
    from menagerie.validation.findings import Measurement, Profile

__all__ = ["bench"]


def bench(
    bundle: Annotated[Path, typer.Argument(metavar="DIR", help="A bundle's folder.")],
    *,
    program: Annotated[str, typer.Option(help="Which program of the model.")] = "main",
    threads: Annotated[int, typer.Option(min=1, max=256, help="That a run uses.")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure.")] = 3.0,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time goes, by kernel.")
    ] = False,
    most: Annotated[int, typer.Option(min=0, help="Kernels to show, the longest.")] = 25,
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    as_json: JsonOption = False,
) -> None:
    """Time an artifact on its largest golden input, without PyTorch.

    A profile is of the CPU alone: each kernel with its share of the time, and of what this machine
    can do at most, which is measured beforehand (its roofline). More than that is possible where
    operands lie in a cache, and by Winograd's algorithm, which multiplies less often than the
    convolution whose operations are counted. A GPU's kernels run on after their call.

    **Examples**

    - `zoo bench out --threads 2`
    - `zoo bench out --profile`
    - `zoo bench out --profile --json`
    """
    from menagerie.profile import with_shares
    from menagerie.timing import EMULATED, is_emulated, measure, measure_kernels

    if profile:
        kernels = measure_kernels(bundle, program, threads=threads, seconds=seconds)
        if as_json:
            emit(with_shares(kernels))
        else:
            _print_kernels(program, kernels, most)
        return
    timed = measure(bundle, program, threads=threads, seconds=seconds)
    emulated = is_emulated(bundle)
    if as_json:
        emit({**asdict(timed), "emulated": emulated})
        return
    _print_times(program, timed)
    if emulated:
        results().print(EMULATED)


def _print_times(program: str, timed: "Measurement") -> None:
    from menagerie.figures import milliseconds

    figures = ("minimum", "median", "90 % below", "runs", "threads")
    shown = table("program", *figures, right=figures)
    times = (timed.minimum_ms, timed.median_ms, timed.p90_ms)
    shown.add_row(program, *map(milliseconds, times), str(timed.runs), str(timed.threads))
    results().print(shown)


def _print_kernels(program: str, found: "Profile", most: int) -> None:
    from menagerie.figures import count, milliseconds
    from menagerie.profile import kernel_rows

    figures = ("ms a run", "share", "calls", "GFLOP/s", "GB/s", "of roofline")
    shown = table(*figures, "kernel", right=figures)
    for row in kernel_rows(found, most):
        shown.add_row(*row)
    results().print(shown)
    peaks = f"{found.peaks.flops / 1e9:.0f} GFLOP/s and {found.peaks.bytes / 1e9:.1f} GB/s"
    threads = count(found.threads, "thread")
    run = f"{program}: {milliseconds(found.milliseconds)} a run on {threads}"
    results().print(f"{run}; this machine does {peaks}")
