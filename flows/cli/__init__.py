"""The `zoo` command line: Typer and Rich, one command a file.

Nothing heavy is imported here; each command imports what it needs when it runs, so that `--help`,
`pull` and `run` need neither torch nor Prefect.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from flows.cli.bench import bench
from flows.cli.bisect import bisect
from flows.cli.catalog import catalog
from flows.cli.cluster import AS_GIVEN, down, status, up
from flows.cli.compile import compile_model
from flows.cli.convert import convert
from flows.cli.diff import diff
from flows.cli.doctor import doctor
from flows.cli.explain import explain
from flows.cli.gc import gc
from flows.cli.keys import keys
from flows.cli.listing import list_models
from flows.cli.new import new
from flows.cli.output import complain, messages
from flows.cli.promote import promote, retract, rollback
from flows.cli.provenance import provenance
from flows.cli.pull import pull
from flows.cli.rebuild import rebuild
from flows.cli.releases import releases
from flows.cli.report import report
from flows.cli.run import run
from flows.cli.runs import runs
from flows.cli.schema import schema
from flows.cli.show import show
from flows.cli.stats import stats
from flows.cli.submit import submit
from flows.cli.transcribe import transcribe
from flows.cli.verify import verify
from flows.machine.loopback import keep_off_proxies
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "invoke", "main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

app = typer.Typer(
    name="zoo",
    help="Models that run without PyTorch: convert them, prove them, pull them, run them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all that was asked for is done, 1 a model failed, 2 misuse.",
)
app.command("list")(list_models)
app.command("compile")(compile_model)
app.add_typer(keys)
for command in (
    show,
    new,
    convert,
    promote,
    rollback,
    retract,
    releases,
    diff,
    provenance,
    rebuild,
    catalog,
    pull,
    verify,
    run,
    bench,
    transcribe,
    report,
    explain,
    bisect,
    schema,
    doctor,
    gc,
    submit,
    runs,
    stats,
):
    app.command()(command)
for program in (up, down, status):
    app.command(context_settings=AS_GIVEN)(program)


def main() -> None:
    """Entry point of the `zoo` script."""
    keep_off_proxies()
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str], program: typer.Typer = app) -> int:
    """Run one command line.

    Args:
        arguments: the command and its options.
        program: what has the commands.

    Returns:
        The exit code: 0 all done, 1 a model failed, 2 misuse, 130 interrupted.
    """
    try:
        program(args=list(arguments), prog_name="zoo")
    except SystemExit as finished:
        code = finished.code if isinstance(finished.code, int) else 1
        if code == INTERRUPTED:
            messages().print("interrupted")
        return code
    except BrokenPipeError:  # the reader of our output has left, `zoo list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("MENAGERIE_DEBUG"):
            raise
        complain(error)
        return error.exit_code if isinstance(error, MenagerieError) else 1
    return 0
