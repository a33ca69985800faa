"""`zoo diff`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.bundles import bundle_at, model_name
from flows.cli.options import JsonOption, StoreOption, TargetOption, store_url
from flows.cli.output import emit, results, table
from zoo.errors import NotInStore, UsageError

if TYPE_CHECKING:
    from menagerie.format.bundle_manifest import BundleManifest
    from menagerie.trust.ledger import Ledger
    from zoo.records import ConversionReport
    from zoo.report.comparison import Difference
    from zoo.store import Store

__all__ = ["diff"]

_COLOURS = {"better": "green", "worse": "red", "other": "yellow", "same": "dim"}
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
        colour = _COLOURS[each.change]
        word = "" if each.change in {"same", "other"} else each.change
        row = (section if new else "", *map(escape, (each.what, each.before, each.after)), word)
        shown.add_row(*row, style=colour if word else None)
    results().print(shown if found else "no difference")


def _side(which: str, target: str, store: str) -> "tuple[BundleManifest, ConversionReport | None]":
    from menagerie.format.folder import open_bundle
    from zoo.report import read_report

    if Path(which).exists():
        with bundle_at(which, target, store) as folder:
            bundle = open_bundle(folder)
            return bundle.manifest, read_report(bundle.folder)
    return _released(which, target, store)


def _released(
    which: str, target: str, store: str
) -> "tuple[BundleManifest, ConversionReport | None]":
    from zoo.report.released import report_of
    from zoo.store import open_store

    text, _, rank = which.partition("@")
    model, opened = model_name(text), open_store(store)
    if rank in {"", "latest"}:
        release = opened.find(model, target)
    else:
        release = opened.find_any(model, target, _build(opened, model, target, rank))
    return release.manifest, report_of(opened, release)


def _build(store: "Store", model: str, target: str, rank: str) -> str:
    """The build key that `before`, a number or the beginning of a key means."""
    keys = _history(store, model, target)
    if rank == "before":
        latest = store.find(model, target).build_key
        earlier = keys[: keys.index(latest)] if latest in keys else keys
        if not earlier:
            raise UsageError(model, "has one release", "Name what to compare it with: a folder")
        return earlier[-1]
    if re.fullmatch(r"[1-9][0-9]{0,5}", rank) and int(rank) <= len(keys):
        return keys[int(rank) - 1]
    known = {*keys, *(release.build_key for release in store.candidates(model, target))}
    found = [key for key in known if key.startswith(rank)]
    if len(found) != 1:
        fact = f"{rank!r} is neither one of its {len(keys)} releases nor begins one build key"
        raise UsageError(model, fact, f"See: zoo releases {model}")
    return found[0]


def _history(store: "Store", model: str, target: str) -> list[str]:
    """The build keys of a model's releases, in the order in which they were first promoted."""
    ledgers = [ledger for ledger in store.ledgers(model) if ledger.target == target]
    if not ledgers:
        raise NotInStore(store.url, f"nothing of {model} for {target} was promoted", "zoo promote")
    return list(dict.fromkeys(e.build_key for e in _here(ledgers).entries))


def _here(ledgers: "list[Ledger]") -> "Ledger":
    """The ledger of the platform that this machine runs first."""
    from menagerie.platforms import runnable_platforms

    order = runnable_platforms(ledgers[0].target)
    ranks = {platform: rank for rank, platform in enumerate(order)}
    return min(ledgers, key=lambda ledger: ranks.get(ledger.platform, len(ranks)))
