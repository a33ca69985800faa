"""Renewed proofs of releases, by their golden cases or by a rebuild that must be identical."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, job_for, plan
from menagerie.figures import milliseconds, size
from menagerie.format.bundle_manifest import ReleaseState
from tasks.stage_table import Hold
from tasks.verify import Proof, ProofOutcome, Rebuild, RebuildOutcome, rebuild_release, runs_here
from zoo.base_models import Frozen
from zoo.errors import MenagerieError, NotInStore, explain
from zoo.report.page import plain_text
from zoo.store import Release, Store, open_store

_log = logging.getLogger(__name__)
_OTHER = (
    "was made of another code, entry, weights, compiler or version than are at hand here: "
    "make it again with those that its provenance names"
)


class VerifyResult(Frozen):
    """The proofs of all verified releases."""

    proofs: tuple[Proof, ...]
    store: str
    when: str  # ISO 8601, UTC

    @property
    def succeeded(self) -> bool:
        """Whether no release that can run here failed."""
        return all(p.outcome in (ProofOutcome.PROVEN, ProofOutcome.ELSEWHERE) for p in self.proofs)

    @property
    def summary(self) -> str:
        """One line, e.g. `12 proven, 1 refuted`."""
        counts = {o: sum(p.outcome is o for p in self.proofs) for o in ProofOutcome}
        return ", ".join(f"{n} {o}" for o, n in counts.items() if n) or "nothing to prove"


def prove_all(
    store: str, releases: Iterable[Release], prove: Callable[[Release], Proof]
) -> VerifyResult:
    """Prove releases one after another.

    `prove` pulls a release and runs it, and may publish it as validated if the proof passes.
    """
    return VerifyResult(
        proofs=tuple(_proof(each, prove) for each in releases),
        store=store,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def published(
    store: Store, models: Sequence[str], targets: Sequence[str], *, every_build: bool = False
) -> list[Release]:
    """Return the releases of these models and targets; an empty sequence means all.

    They are the latest of each model, target and platform, or all with `every_build`. Raise
    StoreError if the store cannot be listed.
    """
    found = store.releases() if every_build else _latest(store, models)
    return [each for each in found if _asked_for(each, models, targets)]


def unconfirmed(store: Store, models: Sequence[str], targets: Sequence[str]) -> list[Release]:
    """Return the releases and candidates of these models and targets that wait for a device.

    No device has run them, and no verification has refuted them since. `store` must allow unsigned
    releases, because candidates are unsigned. Raise StoreError if it cannot be read.
    """
    builds = {each.names: each for each in [*store.candidates(), *_latest(store, models)]}

    def waits(release: Release) -> bool:
        verdict = store.verdict(release)
        emulated = release.manifest.state is ReleaseState.EMULATED
        return emulated and (not verdict or verdict.passed)

    return [each for each in builds.values() if _asked_for(each, models, targets) and waits(each)]


def _asked_for(release: Release, models: Sequence[str], targets: Sequence[str]) -> bool:
    return (not models or release.model in models) and (not targets or release.target in targets)


def _latest(store: Store, named: Sequence[str]) -> Iterator[Release]:
    """Yield the latest release, if any, of each model, target and platform."""
    places = dict.fromkeys((each.model, each.target, each.platform) for each in store.releases())
    for model, target, platform in places:
        try:
            yield store.find(model, target, platform=platform)
        except NotInStore as error:  # e.g. all were retracted
            _log.log(logging.WARNING if model in named else logging.INFO, "passed over: %s", error)


def _proof(release: Release, prove: Callable[[Release], Proof]) -> Proof:
    """Prove a release; a failure is returned as a proof with another outcome."""
    if not runs_here(release.manifest):
        requires, outcome = release.manifest.requires, ProofOutcome.ELSEWHERE
        detail = f"for {requires.system} {requires.machine}"
    else:
        try:
            return prove(release)
        except Exception as error:  # noqa: BLE001 - the others must be verified too
            outcome, detail = ProofOutcome.UNREACHABLE, _explained(error, release)
    return Proof.of(release, outcome=outcome, state=release.manifest.state, detail=detail)


def verification_markdown(result: VerifyResult) -> str:
    """Return the result as a Markdown table."""
    rows = ["| model | target | build | verdict | latency | why |", "|---|---|---|---|---:|---|"]
    for p in result.proofs:
        latency = "" if p.latency_ms is None else milliseconds(p.latency_ms)
        cells = (p.model, p.target, p.build_key[:12], p.outcome, latency, p.detail)
        rows.append(f"| {' | '.join(map(plain_text, cells))} |")
    return f"{result.summary}, {result.when}\n\n" + "\n".join(rows) + "\n"


def turn_of_the_day(
    store: Store, models: Sequence[str], targets: Sequence[str], day: int
) -> Release | None:
    """Return today's release to rebuild, among the latest of each model.

    Only releases made by the installed code count; None if there is none. `day` increases by one
    every day, so that each release has its turn.
    """
    latest = published(store, models, targets)
    for place in range(len(latest)):
        release = latest[(day + place) % len(latest)]
        try:
            if _planned(release, ConversionOptions(store=store.url)) is not None:
                return release
        except MenagerieError as error:  # no longer in the manifest
            _log.info("%s for %s: %s", release.model, release.target, error)
    return None


def rebuild(release: Release, options: ConversionOptions, hold: Hold) -> Rebuild:
    """Build a release again, with its weights, and compare; always return a verdict."""
    try:
        planned = _planned(release, options)
        if planned is None:
            return Rebuild.of(release, outcome=RebuildOutcome.OTHER, detail=_OTHER)
        job = job_for(planned, options)
        return rebuild_release(open_store(job.store), release, job, hold)
    except Exception as error:  # noqa: BLE001 - the caller waits for a verdict
        detail = _explained(error, release)
        return Rebuild.of(release, outcome=RebuildOutcome.UNDECIDED, detail=detail)


def _explained(error: Exception, release: Release) -> str:
    """Return an error as one line; log the traceback of a foreign error."""
    if not isinstance(error, MenagerieError):
        _log.warning("%s for %s", release.model, release.target, exc_info=True)
    return str(explain(error, release.model))


def rebuild_markdown(found: Rebuild) -> str:
    """Return the result as Markdown."""
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
    """Return the conversion that yields the release's build key here; None if there is none."""
    asked = {"random_weights": release.manifest.random_weights, "force": True}
    [planned] = plan([release.model], [release.target], options.model_copy(update=asked))
    if planned.error is not None:
        raise planned.error
    return planned if planned.build_key == release.build_key else None
