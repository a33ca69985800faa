"""The `zoo` command line: Typer and Rich, one command a file.

Nothing heavy is imported here; each command imports what it needs when it runs, so that `--help`,
`pull` and `run` need neither torch nor Prefect.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections import UserDict
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from flows.cli.output import complain, messages
from flows.connection import keep_off_proxies
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "invoke", "main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

# Where each stands, in the order of the help.
_COMMANDS = {
    "list": "listing:list_models",
    "compile": "compile:compile_model",
    "show": "show:show",
    "convert": "convert:convert",
    "promote": "promote:promote",
    "rollback": "promote:rollback",
    "retract": "promote:retract",
    "releases": "releases:releases",
    "diff": "diff:diff",
    "provenance": "provenance:provenance",
    "rebuild": "rebuild:rebuild",
    "catalog": "catalog:catalog",
    "pull": "pull:pull",
    "verify": "verify:verify",
    "run": "run:run",
    "bench": "bench:bench",
    "transcribe": "transcribe:transcribe",
    "report": "report:report",
    "explain": "explain:explain",
    "bisect": "bisect:bisect",
    "schema": "schema:schema",
    "doctor": "doctor:doctor",
    "gc": "gc:gc",
    "submit": "submit:submit",
    "up": "cluster:up",
    "down": "cluster:down",
    "status": "cluster:status",
    "keys": "keys:keys",
}

# Commands whose options are another program's, `--help` included.
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
_SETTINGS = dict.fromkeys(("up", "down", "status"), _AS_GIVEN)


class _OnDemand(UserDict[str, Any]):
    """Commands by name: the file of one is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        found = resolve_name(f"{__name__}.{super().__getitem__(name)}")
        program = typer.Typer(rich_markup_mode="markdown")
        if isinstance(found, typer.Typer):
            program.add_typer(found)
        else:
            program.command(name, context_settings=_SETTINGS.get(name))(found)
        return typer.main.get_group(program).commands[name]


class _Zoo(TyperGroup):
    """All commands, of which a command line imports the one that it names."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": _OnDemand(_COMMANDS)})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Their names; nothing is imported for these."""
        return list(_COMMANDS)


app = typer.Typer(
    cls=_Zoo,
    name="zoo",
    help="Models that run without PyTorch: convert them, prove them, pull them, run them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all that was asked for is done, 1 a model failed, 2 misuse.",
)


def _show_version(*, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"zoo {importlib.metadata.version('menagerie-zoo')}\n")
        raise typer.Exit


@app.callback()
def _zoo(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda value: _show_version(wanted=value),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """What stands before a command."""


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
    if sys.stdout is None:  # type: ignore[unreachable, unused-ignore]
        complain(UsageError("standard output", "is closed", "Send it to /dev/null to be rid of it"))
        return UsageError.exit_code
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
