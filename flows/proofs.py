"""Proving releases again, by their golden cases or by making them again byte for byte."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flows.parameters import ConversionOptions
from flows.plan import job_for, plan
from flows.work import replace_text
from menagerie.figures import milliseconds, size
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.paths import home
from tasks.failures import explain
from tasks.verify import Proof, ProofOutcome, Rebuild, RebuildOutcome, rebuild_release, runs_here
from zoo.base_models import Frozen
from zoo.errors import MenagerieError
from zoo.report import plain_text
from zoo.store import Release, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flows.plan import PlannedModel
    from tasks.stages import Hold

_log = logging.getLogger(__name__)


class VerifyResult(Frozen):
    """All releases that were looked at, a proof each."""

    proofs: tuple[Proof, ...]
    store: str
    when: str  # ISO 8601, UTC

    @property
    def succeeded(self) -> bool:
        """Whether nothing that could be tried here failed."""
        fine = (ProofOutcome.PROVEN, ProofOutcome.ELSEWHERE)
        return all(proof.outcome in fine for proof in self.proofs)

    @property
    def summary(self) -> str:
        """One line, e.g. `12 proven, 1 refuted`."""
        counts = {o: sum(p.outcome is o for p in self.proofs) for o in ProofOutcome}
        return ", ".join(f"{n} {o}" for o, n in counts.items() if n) or "nothing to prove"


def verify_all(
    store: str,
    models: Sequence[str],
    targets: Sequence[str],
    prove: Callable[[Release], Proof],
    *,
    every_build: bool,
) -> VerifyResult:
    """Prove the chosen releases one after another, and keep the result under Menagerie's home.

    Args:
        store: the store's address.
        models: only these; none: all.
        targets: only for these; none: all.
        prove: pulls a release and runs it.
        every_build: not only the latest release of each model and target.

    Raises:
        StoreError: the store cannot be asked what it holds.
    """
    opened = open_store(store)
    found = opened.releases() if every_build else _latest(opened)
    result = VerifyResult(
        proofs=tuple(_proof(each, prove) for each in found if _asked_for(each, models, targets)),
        store=store,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    _keep(result)
    return result


def confirm_all(
    store: str, models: Sequence[str], targets: Sequence[str], prove: Callable[[Release], Proof]
) -> VerifyResult:
    """Prove on this machine's device what was only emulated, releases and candidates.

    The store alone says what waits: what no device has run, and no verification has refuted since.

    Args:
        store: the store's address.
        models: only these; none: all.
        targets: only for these; none: all.
        prove: pulls a build, runs it, and publishes it as validated if it holds.

    Raises:
        StoreError: the store cannot be asked what it holds.
    """
    opened = open_store(store, allow_unsigned=True)  # candidates are signed by nobody yet
    builds = {each.names: each for each in [*opened.candidates(), *_latest(opened)]}
    proofs = []
    for release in builds.values():
        verdict = opened.verdict(release)
        emulated = release.manifest.state is ReleaseState.EMULATED
        if _asked_for(release, models, targets) and emulated and (not verdict or verdict.passed):
            proofs.append(_proof(release, prove))
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return VerifyResult(proofs=tuple(proofs), store=store, when=when)


def _asked_for(release: Release, models: Sequence[str], targets: Sequence[str]) -> bool:
    return (not models or release.model in models) and (not targets or release.target in targets)


def _latest(store: Store) -> list[Release]:
    """The latest release of each model, target and platform."""
    places = dict.fromkeys((each.model, each.target, each.platform) for each in store.releases())
    return [store.find(model, target, platform=platform) for model, target, platform in places]


def _proof(release: Release, prove: Callable[[Release], Proof]) -> Proof:
    """Whatever happens, there is a proof, or the lack of one."""
    if not runs_here(release.manifest):
        requires, outcome = release.manifest.requires, ProofOutcome.ELSEWHERE
        detail = f"for {requires.system} {requires.machine}"
    else:
        try:
            return prove(release)
        except Exception as error:  # noqa: BLE001 - the others are to be verified all the same
            _log.warning("%s for %s", release.model, release.target, exc_info=True)
            outcome, detail = ProofOutcome.UNREACHABLE, str(explain(error, release.model))
    return Proof.of(release, outcome=outcome, state=release.manifest.state, detail=detail)


def verification_markdown(result: VerifyResult) -> str:
    """A table for a person."""
    rows = ["| model | target | build | verdict | latency | why |", "|---|---|---|---|---:|---|"]
    for p in result.proofs:
        latency = "" if p.latency_ms is None else milliseconds(p.latency_ms)
        cells = (p.model, p.target, p.build_key[:12], p.outcome, latency, p.detail)
        rows.append(f"| {' | '.join(map(plain_text, cells))} |")
    return f"{result.summary}, {result.when}\n\n" + "\n".join(rows) + "\n"


def _keep(result: VerifyResult) -> None:
    """The last verification as files, for those who have no server to look at.

    Where they cannot be written, a warning: hours of work are not lost to a disk that is full.
    """
    folder = home() / "reports"
    written = {
        "verification.json": json.dumps(result.model_dump(mode="json"), indent=1),
        "verification.md": verification_markdown(result),
    }
    try:
        folder.mkdir(exist_ok=True)
        for name, text in written.items():
            replace_text(folder / name, text)
    except OSError as error:
        _log.warning("The verification could not be written to %s: %s", folder, error)


_OTHER = (
    "was made of another code, entry, weights, compiler or version than are at hand here: "
    "make it again with those that its provenance names"
)


def turn_of_the_day(
    store: Store, models: Sequence[str], targets: Sequence[str], day: int
) -> Release | None:
    """The release whose turn it is: of the latest of each model, those that can be made here.

    Args:
        store: where they are.
        models: only these; none: all.
        targets: only for these; none: all.
        day: a number that grows by one a day, so that each has its turn.

    Returns:
        A release of the code that is installed here; None where there is none.
    """
    latest = [each for each in _latest(store) if _asked_for(each, models, targets)]
    for place in range(len(latest)):
        release = latest[(day + place) % len(latest)]
        try:
            if _planned(release, ConversionOptions(store=store.url)) is not None:
                return release
        except MenagerieError as error:  # no longer in the manifest
            _log.info("%s for %s: %s", release.model, release.target, error)
    return None


def rebuild(release: Release, options: ConversionOptions, hold: Hold) -> Rebuild:
    """Make a release again and compare; whatever happens, there is a verdict.

    Args:
        release: the build.
        options: its store and its manifest; the weights are the release's.
        hold: starts what holds the model.
    """
    try:
        planned = _planned(release, options)
        if planned is None:
            return Rebuild.of(release, outcome=RebuildOutcome.OTHER, detail=_OTHER)
        opened = open_store(options.store_url)
        return rebuild_release(opened, release, job_for(planned, options), hold)
    except Exception as error:  # noqa: BLE001 - somebody waits for a verdict
        _log.warning("%s for %s", release.model, release.target, exc_info=True)
        detail = str(explain(error, release.model))
        return Rebuild.of(release, outcome=RebuildOutcome.UNDECIDED, detail=detail)


def rebuild_markdown(found: Rebuild) -> str:
    """What came of it, for a person."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    head = f"{found.model} for {found.target}, build {found.build_key[:12]}: {found.outcome}"
    lines = [f"{head}, {when}", "", f"{found.files} files, {size(found.bytes)}"]
    if found.differences:
        lines += ["", "| file | difference |", "|---|---|"]
        lines += [f"| {plain_text(d.place)} | {plain_text(d.fact)} |" for d in found.differences]
    elif found.detail:
        lines += ["", plain_text(found.detail)]
    return "\n".join(lines) + "\n"


def _planned(release: Release, options: ConversionOptions) -> PlannedModel | None:
    """The conversion that would give the very build key of the release, if there is one here."""
    given = options.model_copy(update={"random_weights": release.manifest.random_weights})
    known = {release.model: release.build_key}  # the store need not be asked
    for planned in plan([release.model], [release.target], given, known=known):
        if planned.error is not None:
            raise planned.error
        if planned.build_key == release.build_key:
            return planned
    return None
