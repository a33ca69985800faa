"""Verification of a published release: a new proof, or a rebuild compared byte for byte."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from menagerie.format.bundle_manifest import BundleManifest, ReleaseState
from menagerie.format.folder import open_bundle
from menagerie.host import emulates
from menagerie.validation import Limits
from menagerie.validation import validate as run_goldens
from menagerie.validation.findings import ValidationReport
from tasks.job import Job
from tasks.stage_table import STAGES, Hold
from transforms.stages import Stage
from zoo.base_models import Frozen
from zoo.bundle_differences import Difference, differences, reseal
from zoo.errors import ArtifactError, HashMismatch, MenagerieError, NotInStore, StoreError
from zoo.report.files import read_graphs, read_report, write_report
from zoo.signing.keyring import keyring_for
from zoo.signing.promotion import Promoter
from zoo.store import Release, ReleaseVerdict, Store, open_store

_BUNDLE = "bundle"  # in the working folder, so that a pull's leftovers are removed too


class ProofOutcome(StrEnum):
    """The result of a release's proof."""

    PROVEN = "proven"
    REFUTED = "refuted"  # it gave another result, or none
    DAMAGED = "damaged"  # the store's bytes are not the published ones, or are gone
    UNREACHABLE = "unreachable"  # nothing could be determined
    ELSEWHERE = "elsewhere"  # it is for another kind of machine


class _Finding(Frozen):
    model: str
    target: str
    build_key: str
    detail: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, release: Release, **found: Any) -> Self:
        """Return the finding for a release, with the other fields from `found`."""
        named = {"model": release.model, "target": release.target, "build_key": release.build_key}
        return cls.model_validate(named | found)


FindingT = TypeVar("FindingT", bound=_Finding)


class Proof(_Finding):
    """The finding of a release's proof."""

    outcome: ProofOutcome
    state: ReleaseState
    latency_ms: float | None = None  # sum of the programs' medians
    machine: str = ""
    runtime: str = ""


def runs_here(manifest: BundleManifest) -> bool:
    """Return whether this machine can run a bundle's programs, or their emulation."""
    here = platform.system().lower(), platform.machine()
    asked = [manifest.requires]
    asked += [e.requires for _, e in manifest.uses() if e.requires is not None]
    return any((each.system, each.machine) == here for each in asked)


def verify_release(
    store: str,
    release: Release,
    folder: Path,
    *,
    threads: int = 1,
    judge: Callable[..., ValidationReport] = run_goldens,
) -> Proof:
    """Pull a release into `folder`, which is removed afterwards, run it, and save the verdict.

    Raise StoreUnreachable if the store does not answer.
    """
    opened = open_store(store)
    return _timed(folder, lambda: _prove(opened, release, folder, threads, judge)[0])


def _timed(folder: Path, work: Callable[[], FindingT]) -> FindingT:
    """Return the finding of `work` with its seconds; remove the folder."""
    began = time.perf_counter()
    try:
        found = work()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found.model_copy(update={"seconds": time.perf_counter() - began})


def confirm_release(
    store: str,
    release: Release,
    folder: Path,
    *,
    judge: Callable[..., ValidationReport] = run_goldens,
) -> Proof:
    """Prove an emulated release again; unless emulated here too, publish it as validated.

    Raise ArtifactError if a file of the bundle changed while it ran, StoreError if it cannot be
    published.
    """
    # It may still be a candidate, and runs in a sandbox.
    opened = open_store(store, allow_unsigned=True)

    def confirm() -> Proof:
        with opened.hold(release):
            proof, report = _prove(opened, release, folder, 1, partial(judge, allow_unsigned=True))
            if report is None or not report.passed:
                return proof
            if report.emulated:
                detail = f"emulated once more: this worker has no device of {release.target}"
                return proof.model_copy(update={"detail": detail})
            bundle = folder / _BUNDLE
            # Its code ran as this user, so its files must still be what was pulled, the report too.
            if open_bundle(bundle).document != release.document:
                fact = "its manifest changed while it was run"
                raise ArtifactError(str(bundle), fact, "Do not trust this artifact")
            written = read_report(bundle).model_copy(update={"validation": report})
            write_report(written, bundle, graphs=read_graphs(bundle))
            reseal(bundle, release.manifest, ReleaseState.VALIDATED)
            _confirm(opened, store, release, bundle)
            return proof.model_copy(update={"state": ReleaseState.VALIDATED})

    return _timed(folder, confirm)


def _prove(
    opened: Store,
    release: Release,
    folder: Path,
    threads: int,
    judge: Callable[..., ValidationReport],
) -> tuple[Proof, ValidationReport | None]:
    state = release.manifest.state
    try:
        bundle = opened.pull(release, folder / _BUNDLE)
    except MenagerieError as error:
        if isinstance(error, StoreError) and not isinstance(error, HashMismatch | NotInStore):
            raise  # the fault is not the release's
        damaged = Proof.of(release, outcome=ProofOutcome.DAMAGED, state=state, detail=str(error))
        return _noted(opened, damaged), None
    emulated = emulates(release.manifest.requires)  # not timed, so it may use all cores
    report = judge(bundle, limits=Limits(threads=None if emulated else threads))
    medians = [p.latency.median_ms for p in report.programs if p.latency is not None]
    proof = Proof.of(
        release,
        outcome=ProofOutcome.PROVEN if report.passed else ProofOutcome.REFUTED,
        state=state,
        detail="" if report.passed else f"{report.verdict}: {report.detail}",
        latency_ms=sum(medians) if medians else None,
        machine=report.machine,
        runtime=report.runtime,
    )
    return _noted(opened, proof), report


def _confirm(opened: Store, store: str, release: Release, bundle: Path) -> None:
    """Publish what a device has proven; signed if a signed ledger names the emulated release."""
    if (keyring := keyring_for(store)) is None:
        opened.propose(bundle)
        return
    promoter = Promoter(opened, keyring)
    confirmed = opened.propose(bundle, vouched=promoter.has_signed)
    if promoter.has_signed(release):
        promoter.promote(confirmed)


def _noted(store: Store, proof: Proof) -> Proof:
    """Save the verdict in the store; a proof without write access is valid all the same."""
    shared = {"model", "target", "build_key", "detail", "machine", "runtime"}
    verdict = ReleaseVerdict(
        passed=proof.outcome is ProofOutcome.PROVEN,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        **proof.model_dump(include=shared),
    )
    try:
        store.note(verdict)
    except StoreError as error:
        unsaid = f"not noted in the store: {error}"
        return proof.model_copy(update={"detail": "; ".join(filter(None, (proof.detail, unsaid)))})
    return proof


class RebuildOutcome(StrEnum):
    """The result of rebuilding a release."""

    IDENTICAL = "identical"
    ROUNDED = "rounded"  # only last bits of golden outputs differ: another kind of processor
    DIFFERENT = "different"
    DAMAGED = "damaged"  # the store's bytes are not the published ones
    OTHER = "other"  # the code, entry, weights or versions here are not those of the release
    UNDECIDED = "undecided"  # it could not be rebuilt


class Rebuild(_Finding):
    """A rebuilt release."""

    outcome: RebuildOutcome
    differences: tuple[Difference, ...] = ()
    files: int = 0  # number of compared files
    bytes: int = 0

    @property
    def succeeded(self) -> bool:
        """Whether the release is what its entry produces."""
        return self.outcome in {RebuildOutcome.IDENTICAL, RebuildOutcome.ROUNDED}


def rebuild_release(store: Store, release: Release, job: Job, hold: Hold) -> Rebuild:
    """Pull a release, convert its model again, and compare; `job.folder` is removed afterwards.

    Nothing is proven, timed or published. Raise Untrusted if no trusted key has signed the
    release, MenagerieError if it cannot be pulled or converted.
    """
    job.folder.mkdir(parents=True)
    return _timed(job.folder, lambda: _rebuild(store, release, job, hold))


def _rebuild(store: Store, release: Release, job: Job, hold: Hold) -> Rebuild:
    compared = {"files": len(release.manifest.listed), "bytes": release.size}
    try:
        published = open_bundle(store.pull(release, job.folder / "published"), check_hashes=False)
    except HashMismatch as error:
        return Rebuild.of(release, outcome=RebuildOutcome.DAMAGED, detail=str(error), **compared)
    with hold(job) as model:
        for stage in (Stage.PULL, Stage.EXPORT, Stage.TRANSFORM, Stage.LOWER):
            model.run(STAGES[stage])
    found = differences(published, open_bundle(job.bundle))
    outcome = RebuildOutcome.ROUNDED if found else RebuildOutcome.IDENTICAL
    if not all(each.rounding for each in found):
        outcome = RebuildOutcome.DIFFERENT
    detail = "; ".join(f"{each.place}: {each.fact}" for each in found)
    return Rebuild.of(release, outcome=outcome, differences=found, detail=detail, **compared)
