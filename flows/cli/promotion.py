"""`zoo release promote`, `rollback` and `retract`, which need the keys."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    ManifestOption,
    ModelArgument,
    PlatformOption,
    ReasonOption,
    StoreOption,
    TargetOption,
)
from flows.cli.output import AS_JSON, answer, complain, messages, results
from zoo.errors import MenagerieError, NotInStore, UnknownName, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from menagerie.trust.ledger import Ledger
    from zoo.report.comparison import Regression
    from zoo.signing.keyring import Keyring
    from zoo.store import Release, Store


def promote(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    build: Annotated[
        str | None,
        typer.Option("--build", metavar="KEY", help="A build's key. Default: all that wait."),
    ] = None,
    latest: Annotated[
        bool, typer.Option(help="Make it the latest; else its key alone pulls it.")
    ] = True,
    goldens: Annotated[
        bool, typer.Option(help="Compute the golden outputs again with PyTorch.")
    ] = True,
    slower: Annotated[
        float, typer.Option(min=1, help="Largest factor by which its time over eager's may grow.")
    ] = 1.25,
    larger: Annotated[float, typer.Option(min=1, help="By what factor its bytes may grow.")] = 1.1,
    snr_loss: Annotated[float, typer.Option(min=0, help="How many dB its SNR may fall.")] = 6.0,
    allow_regression: Annotated[
        bool, typer.Option(help="Make it the latest even beyond these limits.")
    ] = False,
    reason: ReasonOption = "",
    manifest: ManifestOption = None,
    allow_factories: FactoriesOption = False,
    store: StoreOption = "",
) -> None:
    """Check candidates against the manifest here, sign them, and move `latest`.

    A candidate is run in a sandbox, judged by this manifest's tolerances, and its golden outputs
    are compared with what eager PyTorch computes here. One that is less accurate than the latest
    release, or larger, slower or noisier beyond the limits, is signed but does not become the
    latest; see `zoo release diff`.

    **Examples**

    - `zoo release promote resnet18`
    - `zoo release promote resnet18 --larger 2 --reason "more exact"`
    - `zoo release promote resnet18 --store s3://models/zoo --no-latest`
    """
    from tasks.publish import promote_candidate, worse_than_latest
    from zoo.manifest import load_manifest
    from zoo.report.comparison import RegressionLimits
    from zoo.store import open_store

    keyring, opened = _keyring(store), open_store(store)
    waiting = opened.candidates(model, target)
    if build is not None:
        ledgers = [each for each in opened.ledgers(model) if each.target == target]
        known = {c.build_key for c in waiting}.union(*map(build_keys, ledgers))
        waiting = [opened.find_any(model, target, whole_key(model, known, build))]
    if not waiting:
        refuse_slip(opened, model, manifest)
        release = opened.find(model, target)  # already signed; raises if there is none
        text = f"{model} for {target}: nothing waits; the latest is {release.build_key[:12]}"
        answer([], text)
        return
    spec = load_manifest(manifest).spec(model)
    limits = RegressionLimits(slower=slower, larger=larger, snr_db=snr_loss)
    ends = []
    for candidate in waiting:
        worse = () if allow_regression else worse_than_latest(opened, candidate, limits)
        failure = None
        try:
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
        except MenagerieError as error:  # the others are still judged
            failure = error
        stays = worse if latest and failure is None else ()
        ends.append(_told(opened, candidate, failure, stays))
    if any(end["worse"] for end in ends):
        again = f"zoo release promote {model} --target {target} --build KEY --allow-regression"
        messages().print(f"To move it all the same: {again}")
    answer(ends, succeeded=not any(end["worse"] or end["failure"] for end in ends))


def _told(
    store: "Store",
    candidate: "Release",
    failure: MenagerieError | None,
    worse: "tuple[Regression, ...]",
) -> dict[str, object]:
    """Print and return a candidate's outcome: `promoted`, `admitted` (key only) or `refused`."""
    ledger = store.ledger(candidate.model, candidate.platform)
    latest = None if ledger is None else ledger.latest
    is_latest = latest is not None and latest.build_key == candidate.build_key
    decision = "refused" if failure else "promoted" if is_latest else "admitted"
    if not AS_JSON.get():
        what = f"{candidate.model} for {candidate.platform}: {candidate.build_key[:12]}"
        results().print(f"{what} {decision}")
        if failure is not None:
            complain(failure)
        for each in worse:
            messages().print(f"the latest stays: {each.what}: {each.fact}", style="yellow")
    return {
        "build_key": candidate.build_key,
        "platform": candidate.platform,
        "decision": decision,
        "worse": worse,
        "failure": "" if failure is None else str(failure),
    }


def rollback(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="KEY", help="A build's key. Default: the one before the latest."
        ),
    ] = None,
    platform: PlatformOption = None,
    reason: ReasonOption = "",
    store: StoreOption = "",
) -> None:
    """Make an earlier release the latest again, signed.

    **Examples**

    - `zoo release rollback resnet18`
    - `zoo release rollback resnet18 --to 5d3cf1f7 --reason "wrong labels"`
    """
    from zoo.signing.promotion import Promoter
    from zoo.store import open_store

    promoter = Promoter(opened := open_store(store), _keyring(store))
    ledger = _only_ledger(opened, model, target, platform)
    build = None if to is None else whole_key(model, build_keys(ledger), to)
    was = None if ledger.latest is None else ledger.latest.build_key
    now = build if build and build == was else promoter.rollback(ledger, build, reason)
    when = "already" if now == was else "again"
    text = f"{model} for {ledger.platform}: the latest is {now[:12]} {when}"
    answer({"build_key": now, "latest": now}, text)


def retract(
    model: ModelArgument,
    build: Annotated[str, typer.Argument(metavar="KEY", help="Which build, or its beginning.")],
    *,
    reason: Annotated[str, typer.Option(help="The reason that users read.")],
    target: TargetOption = "cpu",
    platform: PlatformOption = None,
    store: StoreOption = "",
) -> None:
    """Say, signed, that a release must no longer be used; it cannot be pulled from then on.

    **Examples**

    - `zoo release retract resnet18 5d3cf1f7 --reason "wrong labels"`
    """
    from zoo.signing.promotion import Promoter
    from zoo.store import open_store

    keyring, opened = _keyring(store), open_store(store)
    ledger = _only_ledger(opened, model, target, platform)
    key = whole_key(model, build_keys(ledger), build)
    latest = Promoter(opened, keyring).retract(ledger, key, reason)
    now = f"the latest is {latest[:12]}" if latest else "it has no latest release now"
    there = {release.build_key for release in opened.releases(model, target)} - {key}
    if not latest and (left := [each for each in ledger.usable if each in there]):
        now += f": zoo release rollback {model} --target {target} --to {left[-1][:12]}"
    text = f"{model} for {ledger.platform}: {key[:12]} retracted, {now}"
    answer({"build_key": key, "latest": latest}, text)


def _keyring(store: str) -> "Keyring":
    from zoo.signing.keyring import keyring_for, keys_folder

    if (found := keyring_for(store)) is None:
        raise UsageError(str(keys_folder()), "has no keys to sign with", "Run: zoo keys init")
    return found


def refuse_slip(store: "Store", model: str, manifest: "Path | None" = None) -> None:
    """Raise a misuse error for a model unknown to the store; suggest one of the manifest."""
    from zoo.manifest import load_manifest

    if not store.ledgers(model) and not store.candidates(model):
        listed = load_manifest(manifest)
        if nearest(model, listed.models):  # other names may be in a custom manifest
            listed.spec(model)
        raise UnknownName(store.url, f"{model} is not published yet", f"Run `zoo convert {model}`")


def ledgers_of(
    store: "Store", model: str, target: str, platform: str | None = None
) -> "tuple[Ledger, ...]":
    """Return a model's ledgers for a target; NotInStore if none, UsageError if no such model."""
    store.objects.require()
    found = tuple(
        ledger
        for ledger in store.ledgers(model)
        if ledger.target == target and platform in {None, ledger.platform}
    )
    if not found:
        fact = f"nothing of {model} for {platform or target} was promoted"
        refuse_slip(store, model)
        verb = "release promote" if store.candidates(model, target) else "convert"
        raise NotInStore(store.url, fact, f"zoo {verb} {model} --target {target}")
    return found


def _only_ledger(store: "Store", model: str, target: str, platform: str | None) -> "Ledger":
    """Return a model's only ledger for a target; raise UsageError if it has several."""
    found = ledgers_of(store, model, target, platform)
    if len(found) > 1:
        listing = ", ".join(ledger.platform for ledger in found)
        raise UsageError(model, f"has releases for {listing}", "Name one with --platform")
    return found[0]


def ledger_here(store: "Store", model: str, target: str) -> "Ledger":
    """Return a model's ledger for this machine's preferred platform; NotInStore if none."""
    from menagerie.host import runnable_platforms

    ranks = {platform: rank for rank, platform in enumerate(runnable_platforms(target))}
    found = ledgers_of(store, model, target)
    return min(found, key=lambda ledger: ranks.get(ledger.platform, len(ranks)))


def build_keys(ledger: "Ledger") -> tuple[str, ...]:
    """Return the keys of all promoted builds, in the order of their first promotion."""
    return tuple(dict.fromkeys(entry.build_key for entry in ledger.entries))


def whole_key(model: str, known: "Iterable[str]", beginning: str) -> str:
    """Return the only build key in `known` with this prefix; UsageError if none or several."""
    found = {key for key in known if key.startswith(beginning)}
    if len(found) != 1:
        fact = f"{beginning!r} begins {len(found) or 'none'} of its build keys"
        raise UsageError(model, fact, f"See: zoo release list {model}")
    return found.pop()
