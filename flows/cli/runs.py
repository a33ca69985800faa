"""`zoo runs`."""

import os
from typing import Annotated

import typer

from flows.cli.options import JsonOption, complete_models, use_cluster
from flows.cli.output import emit, figure, results, table
from menagerie.figures import seconds

__all__ = ["runs"]


def runs(
    model: Annotated[
        str | None,
        typer.Argument(help="Only runs of this model.", autocompletion=complete_models),
    ] = None,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="At most.")] = 20,
    local: Annotated[
        bool,
        typer.Option("--local", help="What ran on this machine, also where there is a server."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what ran, how long it took and what failed, newest first.

    From the Prefect server that is meant (`zoo up`, PREFECT_API_URL), else from this machine's log.

    **Examples**

    - `zoo runs`
    - `zoo runs resnet18 --json`
    """
    from flows.outcome.history import local_history, server_history

    if not local:
        use_cluster(lambda found: found.prefect_environment())
    asked = None if local else os.environ.get("PREFECT_API_URL")
    if asked:
        from flows.running.prefect_api import probe

        probe(asked)
    records = server_history(limit, model) if asked else local_history(limit, model)
    if as_json:
        emit([record.model_dump(mode="json") for record in records])
        return
    shown = table("began", "what", "name", "state", "time", "", right=("time",))
    for record in records:
        stages = ", ".join(f"{name} {seconds(taken)}" for name, taken in record.stages.items())
        began = (record.began or "waiting").replace("T", " ")[:19]
        took = figure(record.seconds, seconds)
        shown.add_row(began, record.what, record.name, record.state, took, record.detail or stages)
    results().print(shown)
