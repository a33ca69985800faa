"""`zoo gc`."""

from typing import Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, store_url
from flows.cli.output import emit, messages, results

__all__ = ["gc"]


def gc(
    *,
    keep: Annotated[
        int, typer.Option("--keep", min=1, max=1000, help="Releases kept a model and target.")
    ] = 3,
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0.0, max=36500.0, help="Younger releases stay, too.")
    ] = 0.0,
    candidate_days: Annotated[
        float,
        typer.Option("--candidate-days", min=0.0, max=36500.0, help="Younger candidates stay."),
    ] = 30.0,
    grace_hours: Annotated[
        float,
        typer.Option("--grace-hours", min=0.0, max=8760.0, help="Anything younger stays."),
    ] = 24.0,
    really: Annotated[bool, typer.Option("--delete", help="Remove it, not only say what.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what no release needs any more, or remove it with `--delete`.

    The latest release of every model and target stays, as its ledger has it, and so does every file
    that a release names; others may publish meanwhile. A candidate that nobody has promoted goes
    when it is older than `--candidate-days` and `--keep-days`.

    **Examples**

    - `zoo gc`
    - `zoo gc --keep 1 --delete`
    - `zoo gc --keep 2 --keep-days 90 --delete`
    """
    from flows.work import collect
    from zoo.store import KeepRule, open_store

    open_store(place := store_url(store)).objects.require()
    rule = KeepRule(
        releases=keep, days=keep_days, candidate_days=candidate_days, grace_hours=grace_hours
    )
    with messages().status("looking through the store"):
        collected = collect(place, rule, dry_run=not really)
    if as_json:
        emit(collected.model_dump(mode="json"))
        return
    for key in collected.swept.documents:
        results().print(key, markup=False)
    results().print(collected.summary)
    if not really:
        results().print("Nothing was removed: `zoo gc --delete` does it")
