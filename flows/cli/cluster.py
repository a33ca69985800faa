"""`zoo up`, `zoo down` and `zoo status`, which run a program of a checkout: `infra/local`."""

import importlib.util
import subprocess
import sys

import typer

__all__ = ["down", "status", "up"]


def up(context: typer.Context) -> None:
    """Start the local cluster: Prefect's server, an S3 server and a worker, on loopback."""
    _run("up", context.args)


def down(context: typer.Context) -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo up`."""
    _run("down", context.args)


def status(context: typer.Context) -> None:
    """Say whether the local cluster is well, and what to do where it is not."""
    _run("status", context.args)


def _run(command: str, options: list[str]) -> None:
    """Run the program, which says everything itself.

    Raises:
        UsageError: Menagerie was installed without it.
    """
    if importlib.util.find_spec("infra") is None:
        from zoo.errors import UsageError

        fact = "needs the files of the cluster, and they are not there"
        raise UsageError(f"zoo {command}", fact, "Run from a checkout, `make setup`")
    program = [sys.executable, "-P", "-m", "infra.local", command, *options]
    raise typer.Exit(subprocess.run(program, check=False).returncode)
