"""`zoo up`."""

import os
from typing import Annotated

import typer

from flows.cli.options import JsonOption, require_checkout
from flows.cli.output import emit, messages, results

__all__ = ["up"]


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
    from flows.local_cluster import ClusterState, credentials_path

    require_checkout("zoo up")
    from infra.local.up import Change
    from infra.local.up import up as bring_up

    database = "sqlite" if sqlite else postgres
    said = messages()
    with said.status("looking at what runs") as shown:
        tell = shown.update if said.is_terminal else said.print
        parts = bring_up(port=port, database=database, status=tell)
    state = ClusterState.load()
    changed = [part.name for part in parts if part.change is not Change.UNCHANGED]
    if as_json:
        emit({"changed": changed, "ui": state.ui_url if state else None})
        return
    console = results()
    for part in parts:
        console.print(f"{part.change:9}  {part.name:12} {part.detail}", markup=False)
    if not changed:
        console.print("nothing to change")
    if state is not None:
        console.print(f"UI       {state.ui_url}", markup=False)
    console.print(f"sign in  with `api_auth` in {credentials_path()}", markup=False)
    if other := os.environ.get("PREFECT_API_URL"):
        said.print(f"PREFECT_API_URL is set: other commands use {other}", markup=False)
