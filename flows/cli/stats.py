"""`zoo stats`."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, store_url, use_cluster
from flows.cli.output import emit, figure, messages, results, table
from menagerie.figures import seconds, size

if TYPE_CHECKING:
    from flows.outcome.statistics import Statistics

__all__ = ["stats"]

_BAR = 40  # characters of the longest bar


def stats(
    *,
    weeks: Annotated[int, typer.Option("--weeks", min=1, max=520, help="So many back.")] = 8,
    local: Annotated[
        bool, typer.Option("--local", help="This machine's events only, also with a server.")
    ] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="As metrics, for node exporter's textfiles.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what conversions cost, how long runs waited, how they went, and how the store grew.

    Costs and outcomes are of the conversions on this machine; waits are of the server that is
    meant, sizes of the store.

    **Examples**

    - `zoo stats --weeks 4`
    - `zoo stats --json | jq .store`
    - `zoo stats --prometheus > /var/lib/node_exporter/menagerie.prom`
    """
    found = _statistics(weeks, store_url(store), local=local)
    if as_json:
        emit(found.model_dump(mode="json"))
    elif prometheus:
        from flows.outcome.metrics import prometheus_text

        typer.echo(prometheus_text(found), nl=False)
    else:
        _print(found)


def _statistics(weeks: int, store: str, *, local: bool) -> "Statistics":
    """What cannot be asked is said on standard error, and left out."""
    from flows.outcome.statistics import conversion_statistics, queue_times, store_growth
    from zoo.errors import MenagerieError
    from zoo.store import open_store

    found = conversion_statistics(weeks)
    try:
        growth = store_growth(open_store(store).releases())
        found = found.model_copy(update={"store": growth})
    except MenagerieError as error:
        messages().print(f"left out: {error}", markup=False)
    if not local:
        use_cluster(lambda cluster: cluster.prefect_environment())
    if not local and (asked := os.environ.get("PREFECT_API_URL")):
        from flows.running.prefect_api import probe

        probe(asked)
        found = found.model_copy(update={"queue": queue_times(weeks)})
    return found


def _print(found: "Statistics") -> None:
    console = results()
    costs = table("model", "target", "stage", "times", "processor", "time", "", right=("times",))
    ordered = sorted(found.stages, key=lambda c: (c.model, c.target, -c.processor_seconds))
    most = max((c.processor_seconds for c in found.stages), default=0.0)
    for cost in ordered:
        took = figure(cost.processor_seconds or None, seconds)
        bar = _bar(cost.processor_seconds, most)
        cells = (cost.model, cost.target, cost.stage, str(cost.times), took)
        costs.add_row(*cells, seconds(cost.seconds), bar)
    console.print(costs)
    weeks = table("week of", "succeeded", "", "outcomes", right=("succeeded",))
    for week in found.weeks:
        told = ", ".join(f"{count} {name}" for name, count in sorted(week.outcomes.items()))
        share = week.success or 0.0
        weeks.add_row(week.monday, f"{share:.0%}", _bar(share, 1.0), told)
    console.print(weeks)
    if found.queue:
        waits = table("flow", "runs", "waited", "at most", right=("runs", "waited", "at most"))
        for queue in found.queue:
            times = (seconds(queue.median), seconds(queue.longest))
            waits.add_row(queue.flow, str(queue.runs), *times)
        console.print(waits)
    growth = table("week of", "releases", "store", "", right=("releases", "store"))
    largest = found.store[-1].bytes if found.store else 0
    for point in found.store:
        bar = _bar(point.bytes, largest)
        growth.add_row(point.monday, str(point.releases), size(point.bytes), bar)
    console.print(growth)


def _bar(value: float, most: float) -> str:
    return "█" * round(_BAR * value / most) if most else ""
