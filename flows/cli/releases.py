"""`zoo releases`."""

from typing import Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, complete_models, store_url
from flows.cli.output import emit, results, table

__all__ = ["releases"]


def releases(
    model: Annotated[str, typer.Argument(help="Name of a model.", autocompletion=complete_models)],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the signed history of a model's releases, and what waits for its promotion."""
    from rich.markup import escape

    from menagerie.typed_json import plain
    from zoo.store import open_store

    opened = open_store(store_url(store))
    opened.objects.require()
    ledgers, waiting = opened.ledgers(model), opened.candidates(model)
    if as_json:
        emit(
            {
                "ledgers": [plain(ledger) for ledger in ledgers],
                "latest": {
                    ledger.platform: None if ledger.latest is None else ledger.latest.build_key
                    for ledger in ledgers
                },
                "candidates": [[c.platform, c.build_key, c.manifest.created] for c in waiting],
            }
        )
        return
    shown = table("platform", "when", "decision", "build", "state", "reason")
    for ledger in ledgers:
        latest = ledger.latest
        for entry in ledger.entries:
            mark = " (latest)" if entry is latest else ""
            build = entry.build_key[:12] + mark
            shown.add_row(
                ledger.platform,
                entry.when,
                entry.action,
                build,
                entry.state.value,
                escape(entry.reason),
            )
    for candidate in waiting:
        created = candidate.manifest.created
        build, state = candidate.build_key[:12], candidate.manifest.state.value
        shown.add_row(candidate.platform, created, "candidate", build, state, "")
    results().print(shown)
