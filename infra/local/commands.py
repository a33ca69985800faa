"""`zoo cluster up`, `down` and `status`, which `zoo` mounts where it runs from a checkout."""

import os
from typing import Annotated

import typer

from flows.cli.output import answer, messages, shown_checks


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
) -> None:
    """Start the local cluster: Prefect's server, an S3 server and a worker, on loopback.

    What runs already is left alone. Afterwards `zoo convert` works through it.

    **Examples**

    - `zoo cluster up`
    - `zoo cluster up --port 4300`
    """
    from flows.connection import state_path
    from infra.local import cluster

    said = messages()
    with said.status("looking at what runs") as shown:
        tell = shown.update if said.is_terminal else said.print
        state, changed = cluster.up(port=port, tell=tell)
    answer(
        {"changed": changed, "ui": state.ui_url},
        *shown_checks(cluster.status().checks),
        f"started or applied: {', '.join(changed)}" if changed else "nothing to change",
        f"UI       {state.ui_url}",
        f"sign in  with `api_auth` in {state_path()}",
    )
    if other := os.environ.get("PREFECT_API_URL"):
        said.print(f"PREFECT_API_URL is set: other commands use {other}")


def down() -> None:
    """End the local cluster; its data, ports and secrets stay for the next `zoo cluster up`.

    Conversions at work are ended too and run again after the next `zoo cluster up`.

    **Examples**

    - `zoo cluster down`
    """
    from infra.local import cluster

    with messages().status("ending the cluster"):
        ended = cluster.down()
    text = f"ended {', '.join(ended)}" if ended else "nothing was running"
    answer({"ended": ended}, text)


def status() -> None:
    """Say whether the local cluster is well, and what to do where it is not.

    Exit code 1 if anything is down.

    **Examples**

    - `zoo cluster status --json`
    """
    from infra.local import cluster

    found = cluster.status()
    answer(found.model_dump(mode="json"), *shown_checks(found.checks))
    if not found.healthy:
        raise typer.Exit(1)
