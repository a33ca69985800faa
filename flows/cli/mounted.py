"""The commands of `menagerie`, which run artifacts, as commands of `zoo`.

Their options, including `--help`, are `menagerie`'s; only the default store differs.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from flows.cli.options import DEFAULT_STORE, complete_models
from menagerie.cli import SUMMARIES, Host, carry_out

Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[OPTIONS]", autocompletion=complete_models)
]


def _mounted(name: str, program: str = "zoo") -> "Callable[..., None]":
    def command(arguments: Arguments = None) -> None:
        from flows.cli.options import known_target, store_url

        host = Host(program, store_url, known_target, DEFAULT_STORE)
        raise typer.Exit(carry_out([name, *(arguments or [])], host))

    command.__doc__ = SUMMARIES[name]
    return command


pull, verify, run, bench, transcribe = map(
    _mounted, ("pull", "verify", "run", "bench", "transcribe")
)
trust = _mounted("trust", "zoo keys")
