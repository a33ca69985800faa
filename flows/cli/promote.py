"""`zoo promote`, `zoo rollback` and `zoo retract`: what only the holder of the keys can do."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    JsonOption,
    ManifestOption,
    StoreOption,
    TargetOption,
    complete_models,
    store_url,
)
from flows.cli.output import emit, messages, results
from zoo.errors import NotInStore, UsageError

if TYPE_CHECKING:
    from menagerie.trust.ledger import Ledger
    from zoo.signing import Keyring
    from zoo.store import Store

__all__ = ["promote", "retract", "rollback"]

_Model = Annotated[str, typer.Argument(help="Name of a model.", autocompletion=complete_models)]
_Platform = Annotated[
    str | None, typer.Option(help="Of the release. Default: the only one there is.")
]


def promote(
    model: _Model,
    *,
    target: TargetOption = "cpu",
    build: Annotated[
        str | None, typer.Option("--build", metavar="KEY", help="Default: all that wait.")
    ] = None,
    latest: Annotated[
        bool, typer.Option(help="Whether it becomes the latest, or is had by its key alone.")
    ] = True,
    goldens: Annotated[
        bool, typer.Option(help="Whether the golden outputs are computed anew with PyTorch.")
    ] = True,
    slower: Annotated[
        float, typer.Option(min=1, help="The latest's time over eager's may grow so many times.")
    ] = 1.25,
    larger: Annotated[float, typer.Option(min=1, help="And its bytes.")] = 1.1,
    snr_loss: Annotated[float, typer.Option(min=0, help="So many dB of parity may go.")] = 6.0,
    allow_regression: Annotated[
        bool, typer.Option(help="Move `latest` to what is worse beyond these limits, too.")
    ] = False,
    reason: Annotated[str, typer.Option(help="For the ledger.")] = "",
    manifest: ManifestOption = None,
    allow_factories: FactoriesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check candidates against the manifest here, sign them, and move `latest`.

    A candidate is run in a sandbox, judged by this manifest's tolerances, and its golden outputs
    are compared with what eager PyTorch computes here. One that is less accurate than the latest
    release, or larger, slower or noisier beyond the limits, is signed but does not become the
    latest; see `zoo diff`.

    **Examples**

    - `zoo promote resnet18`
    - `zoo promote resnet18 --larger 2 --reason "more exact"`
    - `zoo promote resnet18 --store s3://models/zoo --no-latest`
    """
    from tasks.promote import promote_candidate, worse_than_latest
    from zoo.manifest import load_manifest
    from zoo.report.comparison import RegressionLimits
    from zoo.store import open_store

    place = store_url(store)
    keyring, opened = _keyring(place), open_store(place)
    waiting = [c for c in opened.candidates(model, target) if c.build_key.startswith(build or "")]
    if build is not None and not waiting:
        ledgers = [each for each in opened.ledgers(model) if each.target == target]
        known = {key for each in ledgers if (key := _whole_key(each, build))}
        waiting = [opened.find_any(model, target, key) for key in sorted(known or {build})]
    if not waiting:
        release = opened.find(model, target)  # signed already, or there is nothing
        _said(release.build_key, f"{model} for {target}: nothing waits", as_json=as_json)
        return
    spec = load_manifest(manifest).spec(model)
    limits = RegressionLimits(slower=slower, larger=larger, snr_db=snr_loss)
    kept_back = False
    for candidate in waiting:
        worse = () if allow_regression else worse_than_latest(opened, candidate, limits)
        kept_back |= latest and bool(worse)
        with messages().status(f"judging {candidate.build_key[:12]} of {model}"):
            promote_candidate(
                opened,
                keyring,
                candidate,
                spec,
                manifest=manifest,
                latest=latest and not worse,
                goldens=goldens,
                allow_factories=allow_factories,
                reason=reason,
            )
        word = "promoted" if latest and not worse else "admitted"
        text = f"{model} for {candidate.platform}: {candidate.build_key[:12]} {word}"
        _said(candidate.build_key, text, as_json=as_json)
        for each in worse if latest else ():
            messages().print(f"the latest stays: {each.what}: {each.fact}", style="yellow")
    if kept_back:
        again = f"zoo promote {model} --target {target} --build KEY --allow-regression"
        messages().print(f"To move it all the same: {again}", markup=False)
        raise typer.Exit(1)


def rollback(
    model: _Model,
    *,
    target: TargetOption = "cpu",
    to: Annotated[
        str | None, typer.Option("--to", metavar="KEY", help="Default: the one before the latest.")
    ] = None,
    platform: _Platform = None,
    reason: Annotated[str, typer.Option(help="For the ledger.")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an earlier release the latest again, signed."""
    from zoo.signing import Promoter
    from zoo.store import open_store

    place = store_url(store)
    keyring, opened = _keyring(place), open_store(place)
    ledger = _ledger(opened, model, target, platform)
    now = Promoter(opened, keyring).rollback(ledger, _whole_key(ledger, to), reason)
    _said(now, f"{model} for {ledger.platform}: the latest is {now[:12]} again", as_json=as_json)


def retract(
    model: _Model,
    build: Annotated[str, typer.Argument(metavar="KEY", help="Which build, or its beginning.")],
    *,
    reason: Annotated[str, typer.Option(help="What users are told.")],
    target: TargetOption = "cpu",
    platform: _Platform = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say, signed, that a release must no longer be used; nobody can pull it from then on."""
    from zoo.signing import Promoter
    from zoo.store import open_store

    place = store_url(store)
    keyring, opened = _keyring(place), open_store(place)
    ledger = _ledger(opened, model, target, platform)
    key = _whole_key(ledger, build) or build
    Promoter(opened, keyring).retract(ledger, key, reason)
    _said(key, f"{model} for {ledger.platform}: {key[:12]} retracted", as_json=as_json)


def _keyring(store: str) -> "Keyring":
    from zoo.signing import keyring_for
    from zoo.signing.keyring import keys_folder

    if (found := keyring_for(store)) is None:
        raise UsageError(str(keys_folder()), "has no keys to sign with", "Run: zoo keys init")
    return found


def _ledger(store: "Store", model: str, target: str, platform: str | None) -> "Ledger":
    found = [
        ledger
        for ledger in store.ledgers(model)
        if ledger.target == target and platform in {None, ledger.platform}
    ]
    if not found:
        raise NotInStore(store.url, f"nothing of {model} for {target} was promoted", "zoo promote")
    if len(found) > 1:
        listing = ", ".join(ledger.platform for ledger in found)
        raise UsageError(model, f"has releases for {listing}", "Name one with --platform")
    return found[0]


def _whole_key(ledger: "Ledger", beginning: str | None) -> str | None:
    if beginning is None:
        return None
    found = {e.build_key for e in ledger.entries if e.build_key.startswith(beginning)}
    if len(found) != 1:
        fact = f"{beginning!r} begins {len(found)} of its build keys"
        raise UsageError(ledger.model, fact, f"See: zoo releases {ledger.model}")
    return found.pop()


def _said(build_key: str, text: str, *, as_json: bool) -> None:
    if as_json:
        emit({"build_key": build_key})
    else:
        results().print(text, markup=False)
