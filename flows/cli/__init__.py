"""The `zoo` command line, built on Typer and Rich.

Nothing heavy is imported here; each command imports what it needs when it runs, so that `--help`,
`pull` and `run` need neither torch nor Prefect.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import sys
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer._click.exceptions import NoArgsIsHelpError as _NoArguments  # has no public name
from typer._click.exceptions import UsageError as _Misuse
from typer.core import TyperGroup

from flows.cli.output import AS_JSON, complain, messages
from menagerie.process import keep_off_proxies
from menagerie.terminal import written_out
from zoo.errors import MenagerieError, UsageError

INTERRUPTED = 130  # 128 + SIGINT, as in shells
# For commands whose options, including `--help`, belong to another program.
_AS_GIVEN = {"ignore_unknown_options": True, "help_option_names": []}


def _in(file: str, *names: str) -> dict[str, str]:
    """Return the locations of commands that are named like their functions."""
    return {name: f"{file}:{name}" for name in names}


# Locations of the commands, in the order of the help.
_RELEASE = {
    **_in("promotion", "promote", "rollback", "retract"),
    "list": "releases:list_releases",
    **_in("releases", "diff", "provenance", "rebuild", "verify", "catalog", "push", "gc"),
}
_CLUSTER = _in("infra.local.cluster", "up", "down", "status", "restart", "logs")
_DEBUG = _in("debug", "explain", "bisect") | _in("models", "schema")
_TOP = {
    "list": "models:list_models",
    **_in("models", "show", "new"),
    **_in("convert", "convert"),
    "compile": "compile:compile_model",
    **_in("models", "submit", "report"),
    **_in("mounted", "pull", "verify", "run", "bench", "transcribe"),
    **_in("doctor", "doctor"),
}
# Shorter names that the help omits: `zoo promote` is `zoo release promote`.
_ALIASES = {**_RELEASE, **_CLUSTER, **_DEBUG, "releases": _RELEASE["list"]}
_ALIASES |= _in("mounted", "trust")


_JsonOption = Annotated[
    bool, typer.Option("--json", help="Machine-readable result on standard output.")
]


class _OnDemand(UserDict[str, Any]):
    """Commands by name; a command's file is imported on first access."""

    def __getitem__(self, name: str) -> Any:
        place = super().__getitem__(name)
        program = typer.Typer(rich_markup_mode="markdown")
        if isinstance(place, typer.Typer):
            program.add_typer(place)
        elif place.startswith("mounted:"):
            program.command(name, context_settings=_AS_GIVEN)(_found(place))
        else:
            program.command(name)(_with_json(_found(place)))
        return typer.main.get_group(program).commands[name]


def _found(place: str) -> Callable[..., None]:
    """Return a command; the local cluster's commands exist only in a checkout."""
    if not place.startswith("infra."):
        place = f"{__name__}.{place}"
    elif find_spec("infra") is None:
        return _no_cluster
    found: Callable[..., None] = resolve_name(place)
    return found


def _with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option `--json` to a command; `flows.cli.output.answer` obeys it."""

    @functools.wraps(command)
    def with_json(*, as_json: bool, **given: Any) -> None:
        token = AS_JSON.set(as_json)
        try:
            command(**given)
        finally:
            AS_JSON.reset(token)

    known = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)
    parameters = [*known.parameters.values(), option.replace(annotation=_JsonOption)]
    with_json.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_json


def _no_cluster() -> None:
    """Raise UsageError, because the local cluster only runs from a checkout."""
    fact = "needs the files of the local cluster, and they are not there"
    raise UsageError("zoo cluster", fact, "Run from a checkout, `make setup`")


def _group(
    name: str, about: str, commands: Mapping[str, Any], aliases: Mapping[str, Any] | None = None
) -> typer.Typer:
    """Return a group of commands, of which only the named one is imported."""

    class OnDemandGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**{**given, "commands": _OnDemand({**(aliases or {}), **commands})})

        def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
            return list(commands)

    return typer.Typer(
        cls=OnDemandGroup,
        name=name,
        help=about,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


_GROUPS = {
    "release": _group("release", "Releases in a store: judge, sign, compare, keep.", _RELEASE),
    "keys": _group(
        "keys",
        "The keys that sign releases, and whose releases are trusted here.",
        _in("keys", "init", "show", "rotate", "refresh") | _in("mounted", "trust"),
    ),
    "cluster": _group("cluster", "The local cluster: server, store and worker.", _CLUSTER),
    "debug": _group("debug", "Look into a conversion, and what an entry may say.", _DEBUG),
}
app = _group(
    "zoo",
    "Models that run without PyTorch: convert them, prove them, pull them, run them.",
    {**_TOP, **_GROUPS},
    _ALIASES,
)
app.info.epilog = "Exit codes: 0 all is done, 1 a model failed, 2 misuse, 130 interrupted."


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
    """Handle the options before a command."""


def main() -> None:
    """Run the `zoo` script."""
    keep_off_proxies()
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line: a command and its options.

    Return the exit code: 0 for success, 1 if a model failed, 2 for misuse, 130 if interrupted.
    """
    try:
        return written_out(lambda: _carried_out(arguments))
    except _Misuse as misuse:
        if isinstance(misuse, _NoArguments):  # the help has been shown
            return UsageError.exit_code
        path = _command_named(arguments) if misuse.ctx is None else misuse.ctx.command_path
        fact, meant, name = misuse.format_message().strip().partition(" Did you mean ")
        step = f"{meant.lstrip()}{name}{meant and ' '}See `{path} --help`"
        cause: Any = misuse.__cause__
        if hasattr(cause, "error_count"):  # Pydantic's error; Pydantic is slow to import
            option: Any = getattr(misuse, "param", None)
            fact, path = _wrong_value(option, cause), f"{path} {option.opts[0]}"
        complain(UsageError(path, fact[:1].lower() + fact[1:].rstrip("."), step))
        return UsageError.exit_code
    except Exception as error:
        if os.environ.get("MENAGERIE_DEBUG"):
            raise
        complain(error)
        return error.exit_code if isinstance(error, MenagerieError) else 1


def _command_named(arguments: Sequence[str]) -> str:
    """Return the name of a command line's command."""
    first, second = [*arguments, "-", "-"][:2]
    if first not in {*_TOP, *_ALIASES, *_GROUPS}:
        return "zoo"
    return f"zoo {first}" + (f" {second}" if first in _GROUPS and second[:1] != "-" else "")


def _wrong_value(option: Any, error: Any) -> str:
    """Return the fault of an option's value, and the values that are allowed."""
    first = error.errors()[0]
    if option.min is None:
        return str(first["msg"]).removeprefix("Value error, ")
    kind = "a whole number" if "int" in error.title else "a number"
    top = "" if option.max is None else f" to {option.max:.0f}"
    least = f"{'from' if top else 'of at least'} {option.min:.0f}{top}"
    return f"{first['input']!r} is not {kind} {least}"


def _carried_out(arguments: Sequence[str]) -> int:
    try:
        code = app(args=list(arguments), prog_name="zoo", standalone_mode=False) or 0
    except SystemExit as finished:  # from a command of another program
        code = finished.code or 0
    if code == INTERRUPTED:
        messages().print("interrupted")
    return code if isinstance(code, int) else 1
