"""`zoo up`, `zoo down` and `zoo status`, as `python -m infra.local` has them."""

import os
import sys
from typing import Annotated

import typer

from flows.cli import invoke
from flows.cli.options import JsonOption
from flows.cli.output import emit, messages, results, show_check

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def up(
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65535,
            help="For Prefect's UI and API. Default: the one of last time, at first 4200 if free.",
        ),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(
            envvar="MENAGERIE_POSTGRES",
            show_envvar=True,
            metavar="URL",
            help="Keep Prefect's runs in this PostgreSQL database instead of SQLite; remembered.",
        ),
    ] = None,
    sqlite: Annotated[bool, typer.Option("--sqlite", help="Back from PostgreSQL.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the local cluster: Prefect's server, an S3 server and a worker, on loopback.

    What runs already is left alone. Afterwards `zoo convert` works through it.

    **Examples**

    - `zoo up`
    - `zoo up --port 4300`
    - `MENAGERIE_POSTGRES=postgresql://user:password@host/prefect zoo up`
    """
    from flows.connection import credentials_path
    from infra.local.up import UNCHANGED
    from infra.local.up import up as bring_up

    said = messages()
    with said.status("looking at what runs") as shown:
        tell = shown.update if said.is_terminal else said.print
        state, parts = bring_up(port=port, database="sqlite" if sqlite else postgres, tell=tell)
    changed = [name for name, change, _ in parts if change != UNCHANGED]
    if as_json:
        emit({"changed": changed, "ui": state.ui_url})
        return
    lines = [f"{change:9}  {name:12} {detail}" for name, change, detail in parts]
    lines += [] if changed else ["nothing to change"]
    lines += [f"UI       {state.ui_url}", f"sign in  with `api_auth` in {credentials_path()}"]
    results().print("\n".join(lines), markup=False)
    if other := os.environ.get("PREFECT_API_URL"):
        said.print(f"PREFECT_API_URL is set: other commands use {other}", markup=False)


@app.command()
def down(*, as_json: JsonOption = False) -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo up`.

    Conversions at work are ended too and run again after the next `zoo up`.

    **Examples**

    - `zoo cluster down`
    """
    from infra.local.down import down as bring_down

    with messages().status("ending the cluster"):
        ended = bring_down()
    if as_json:
        emit({"ended": ended})
    else:
        results().print(f"ended {', '.join(ended)}" if ended else "nothing was running")


@app.command()
def status(*, as_json: JsonOption = False) -> None:
    """Say whether the local cluster is well, and what to do where it is not.

    Exit code 1 if anything is down.

    **Examples**

    - `zoo cluster status --json`
    """
    from infra.local.status import status as look

    found = look()
    if as_json:
        emit(found.model_dump(mode="json"))
    else:
        for check in found.checks:
            show_check(check)
    if not found.healthy:
        raise typer.Exit(1)


if __name__ == "__main__":
    sys.exit(invoke(sys.argv[1:], app))
