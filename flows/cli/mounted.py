"""Commands of other programs: `menagerie`'s run artifacts, `infra.local`'s run the local cluster.

Their options, `--help` included, are their own; what differs is which store is the default.
"""

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import complete_models
from menagerie.cli import SUMMARIES, Host, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT_STORE = "$MENAGERIE_STORE, that of `zoo cluster up`, or a folder under Menagerie's own"

Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[OPTIONS]", autocompletion=complete_models)
]


def _mounted(name: str, program: str = "zoo") -> "Callable[..., None]":
    def command(arguments: Arguments = None) -> None:
        raise typer.Exit(carry_out([name, *(arguments or [])], _host(program)))

    command.__doc__ = SUMMARIES[name]
    return command


pull, verify, run, bench, transcribe = map(
    _mounted, ("pull", "verify", "run", "bench", "transcribe")
)
trust = _mounted("trust", "zoo keys")


def _host(program: str) -> Host:
    from flows.cli.options import known_target, store_url

    return Host(program, store_url, known_target, _DEFAULT_STORE)


def up(arguments: Arguments = None) -> None:
    """Start the local cluster: Prefect's server, an S3 server and a worker, on loopback."""
    _cluster("up", arguments)


def down(arguments: Arguments = None) -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo cluster up`."""
    _cluster("down", arguments)


def status(arguments: Arguments = None) -> None:
    """Say whether the local cluster is well, and what to do where it is not."""
    _cluster("status", arguments)


def _cluster(command: str, arguments: list[str] | None) -> None:
    """Run the program, which says everything itself.

    Raises:
        UsageError: Menagerie was installed without it.
    """
    if importlib.util.find_spec("infra") is None:
        from zoo.errors import UsageError

        fact = "needs the files of the cluster, and they are not there"
        raise UsageError(f"zoo cluster {command}", fact, "Run from a checkout, `make setup`")
    program = [sys.executable, "-P", "-m", "infra.local", command, *(arguments or [])]
    raise typer.Exit(subprocess.run(program, check=False).returncode)
