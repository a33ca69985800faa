"""`zoo diff`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.bundles import bundle_at, model_name
from flows.cli.options import JsonOption, StoreOption, TargetOption, store_url
from flows.cli.output import emit, results, table
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.report.comparison import Difference, Side
    from zoo.store import Store

__all__ = ["diff"]

_COLOURS = {"better": "green", "worse": "red"}
_Which = typer.Argument(
    metavar="MODEL[@WHICH]|DIR|ZIP",
    help="WHICH: latest, a number in the order of promotion from 1, or the build key's beginning.",
)


def diff(
    before: Annotated[str, _Which],
    after: Annotated[str | None, typer.Argument(metavar="[...]", help="Default: latest.")] = None,
    *,
    target: TargetOption = "cpu",
    everything: Annotated[bool, typer.Option("--all", help="Also what is equal.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two releases: numerics, latency, size, graph, passes, kernels and provenance.

    Given one model alone, its latest release is compared with the one before it.

    **Examples**

    - `zoo diff resnet18`
    - `zoo diff resnet18@1 resnet18@latest --target metal`
    - `zoo diff resnet18 out/`
    """
    from zoo.report.comparison import compare

    place = store_url(store)
    name = before.partition("@")[0]
    if after is None:
        if Path(before).exists():
            raise UsageError(before, "is compared with nothing", f"zoo diff {before} MODEL")
        after = name
        before = before if "@" in before else f"{name}@before"
    found = compare(_side(before, target, place), _side(after, target, place))
    shown = [each for each in found if everything or each.change != "same"]
    if as_json:
        emit([vars(each) for each in shown])
        return
    _print(shown, before, after)


def _print(found: "list[Difference]", before: str, after: str) -> None:
    from rich.markup import escape

    shown = table("", "what", escape(before), escape(after), "")
    section = ""
    for each in found:
        new, section = each.section != section, each.section
        colour = _COLOURS.get(each.change)
        row = (section if new else "", *map(escape, (each.what, each.before, each.after)))
        shown.add_row(*row, each.change if colour else "", style=colour)
    results().print(shown if found else "no difference")


def _side(which: str, target: str, store: str) -> "Side":
    from menagerie.format.folder import open_bundle
    from zoo.report import read_report
    from zoo.report.comparison import Side

    if Path(which).exists():
        with bundle_at(which, target, store) as folder:
            bundle = open_bundle(folder)
            return Side(bundle.manifest, read_report(bundle.folder))
    return _released(which, target, store)


def _released(which: str, target: str, store: str) -> "Side":
    from zoo.report.comparison import Side
    from zoo.report.files import report_of
    from zoo.store import open_store

    text, _, rank = which.partition("@")
    model, opened = model_name(text), open_store(store)
    if rank in {"", "latest"}:
        release = opened.find(model, target)
    else:
        release = opened.find_any(model, target, _build(opened, model, target, rank))
    return Side(release.manifest, report_of(opened, release))


def _build(store: "Store", model: str, target: str, rank: str) -> str:
    """The build key that `before`, a number or the beginning of a key means."""
    from flows.cli.history import build_keys, ledger_here, whole_key

    ledger = ledger_here(store, model, target)
    keys = build_keys(ledger)
    if rank == "before":
        latest = ledger.latest
        earlier = keys if latest is None else keys[: keys.index(latest.build_key)]
        if not earlier:
            fact = f"has no release for {ledger.platform} before its latest"
            raise UsageError(model, fact, "Name two to compare: zoo diff MODEL@1 MODEL@2")
        return earlier[-1]
    if re.fullmatch(r"[1-9][0-9]{0,5}", rank):
        if int(rank) > len(keys):
            fact = f"has {len(keys)} releases for {ledger.platform}, not {rank}"
            raise UsageError(model, fact, f"See: zoo releases {model}")
        return keys[int(rank) - 1]
    waiting = (release.build_key for release in store.candidates(model, target))
    return whole_key(model, {*keys, *waiting}, rank)
