"""Publication of a proven bundle as a candidate, and promotion of a candidate that holds."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

from menagerie.format.archive import pack
from menagerie.format.bundle_manifest import MANIFEST, SIGNATURE
from menagerie.validation import Limits, validate
from menagerie.validation.findings import ValidationReport
from tasks.job import Job, PublishRecord, StageRecords, lent_environment
from zoo.errors import MenagerieError, ValidationError
from zoo.processes import ROLE, WORKER
from zoo.report.comparison import Regression, RegressionLimits, Side, regressions
from zoo.report.files import report_of
from zoo.signing.keyring import Keyring, keyring_for
from zoo.signing.promotion import Promoter, check_candidate
from zoo.spec import ModelSpec
from zoo.store import Release, Store, open_store

_log = logging.getLogger(__name__)

_GOLDEN_SECONDS = 3600.0
_MOST_ARCHIVED = 2 * 2**30  # bytes; larger releases are downloaded by `zoo pull`


def publish_bundle(job: Job, _: StageRecords | None = None) -> PublishRecord:
    """Put the job's bundle into its store, which keeps an earlier release of the same build.

    It becomes a candidate there. If this process may sign for the store, e.g. a local one, it is
    promoted at once, because its goldens were made here. A bucket also gets the release as one zip
    file for some weeks, linked on the run's page. Raise StoreError if the store cannot accept it;
    the store then lists only what was complete before. Raise ValidationError if the bundle does not
    match the entry.
    """
    store = open_store(job.store)
    if (keyring := keyring_for(job.store)) is None:
        release = store.propose(job.bundle)
    else:  # a foreign candidate of this build is not ours to sign
        promoter = Promoter(store, keyring, draws=False)
        release = store.propose(job.bundle, vouched=promoter.has_signed)
        check_candidate(release.manifest, job.spec)
        release = promoter.promote(release)
    ours = release.document == (job.bundle / MANIFEST).read_bytes()
    if keyring is not None and ours:
        _archive(store, release, job)
    return PublishRecord(
        bytes=release.size,
        kept=None if ours else release.manifest.created,
        state=release.manifest.state,
        candidate=keyring is None and (ours or store.candidate(*release.names) == release),
    )


def draw_catalogue(store: Store, models: Collection[str]) -> None:
    """Draw the catalogue's pages of models that `publish_bundle` promoted.

    The list of all models is drawn once for all of them, because drawing it takes time that
    grows with their number. Do nothing if this process may not sign for the store.
    """
    keyring = keyring_for(store.url) if models else None
    if keyring is not None:
        Promoter(store, keyring).draw(models)


def _archive(store: Store, release: Release, job: Job) -> None:
    """Store the release as a signed zip file; only warn if that fails, as it is published."""
    if not job.store.startswith("s3://") or release.size > _MOST_ARCHIVED:
        return
    archive = job.folder / "bundle.zip"
    try:
        (job.bundle / SIGNATURE).write_bytes(store.signatures(release).get(SIGNATURE, b""))
        store.put_archive(release, pack(job.bundle, archive))
    except MenagerieError as error:
        _log.warning("%s for %s is not there as a zip file: %s", job.model, job.target, error)
    finally:
        archive.unlink(missing_ok=True)


def promote_candidate(
    store: Store,
    keyring: Keyring,
    candidate: Release,
    spec: ModelSpec,
    *,
    manifest: Path | None = None,
    latest: bool = True,
    goldens: bool = True,
    allow_factories: bool = False,
    reason: str = "",
    judge: Callable[..., ValidationReport] = validate,
) -> Release:
    """Check a candidate against the manifest of this process, and sign it.

    `spec` is the model's entry here, from the folder `manifest` or Menagerie's own: the candidate's
    own tolerances do not count. With `goldens`, eager PyTorch computes its golden
    outputs again, and `allow_factories` allows foreign builders to run for that. `judge`
    is `menagerie.validation.validate` or a substitute. Raise ValidationError if it does not match
    the entry or does not hold here, StoreError if the store could not deliver or accept it.
    """
    check_candidate(candidate.manifest, spec)
    place = f"{candidate.model} for {candidate.platform}"
    work_folder = tempfile.TemporaryDirectory(prefix="menagerie-promote-")
    with store.hold(candidate), work_folder as work:
        unsigned_too = Store(store.objects, allow_unsigned=True)
        bundle = unsigned_too.pull(candidate, Path(work) / "bundle")
        if goldens:
            _check_goldens(candidate.model, manifest, bundle, allow_factories=allow_factories)
        judged = judge(bundle, limits=Limits(measure_seconds=0.0), allow_unsigned=True)
        if not judged.passed:
            fact = f"{judged.verdict}: {judged.detail}"
            raise ValidationError(place, fact, "Do not promote it; convert it again")
        return Promoter(store, keyring).promote(candidate, latest=latest, reason=reason)


def worse_than_latest(
    store: Store, candidate: Release, limits: RegressionLimits
) -> tuple[Regression, ...]:
    """Return in what respects a candidate is worse than the release that it would replace.

    These are size, parity, accuracy and the time relative to eager's, from both reports, if beyond
    the limits. The result is empty if there is no latest release, or the candidate is it. Raise
    Untrusted if no trusted key has signed the ledger, StoreError if the store did not deliver it.
    """
    ledger = store.ledger(candidate.model, candidate.platform)
    entry = None if ledger is None else ledger.latest
    if entry is None or entry.build_key == candidate.build_key:
        return ()
    latest = store.find_any(candidate.model, candidate.target, entry.build_key)
    before, after = (Side(each.manifest, report_of(store, each)) for each in (latest, candidate))
    return regressions(before, after, limits)


def _check_goldens(
    model: str, manifest: Path | None, bundle: Path, *, allow_factories: bool
) -> None:
    order = {
        "model": model,
        "manifest": str(manifest) if manifest else "",
        "bundle": str(bundle),
        "allow_factories": allow_factories,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "transforms.candidate"],
            input=json.dumps(order),
            env=lent_environment() | {ROLE: WORKER},
            capture_output=True,
            text=True,
            check=False,
            timeout=_GOLDEN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        fact = f"eager PyTorch did not compute its golden outputs within {_GOLDEN_SECONDS:,.0f} s"
        advice = "Try again when the machine has less to do, or leave them out with --no-goldens"
        raise ValidationError(model, fact, advice) from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["no reason was given"]
        raise ValidationError(model, words[-1], "Do not promote it")
