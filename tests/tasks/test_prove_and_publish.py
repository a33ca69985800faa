"""Only a proven bundle is sealed as validated, and only such a one reaches the store."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from toy_zoo import BUILD_KEY, measured, toy_bundle, toy_judgement, toy_records

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from tasks.prove import NotProven, prove
from tasks.publish import publish_bundle
from tasks.verify import confirm_release
from zoo.errors import ArtifactError, StoreError
from zoo.progress import StepDone, progress_to
from zoo.report.files import read_report
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from menagerie.validation import Limits
    from menagerie.validation.findings import ValidationReport
    from tasks.job import Job


def _judged(**changes: object) -> ValidationReport:
    return replace(toy_judgement(), **changes)


def _change_weights(bundle: Path) -> None:
    path = bundle / open_bundle(bundle).manifest.weights.path
    path.write_bytes(b"x" * path.stat().st_size)


def _change_manifest(bundle: Path) -> None:
    """The weights, and the manifest that lists their hash."""
    _change_weights(bundle)
    manifest = open_bundle(bundle, check_hashes=False).manifest
    seal(bundle, replace(manifest, licence="mine"))


def _add_file(bundle: Path) -> None:
    (bundle / "extra.bin").write_bytes(b"x")


def _swap_report(bundle: Path) -> None:
    """At the size that it has."""
    path = bundle / "report.json"
    text = path.read_text() if path.is_file() else "forged"
    path.write_text("forged".ljust(len(text)))


def test_a_proven_bundle_is_sealed_with_its_report(job: Job) -> None:
    """State validated, every file hashed, the report in the bundle and beside it."""
    toy_bundle(job)
    report = prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    sealed = open_bundle(job.bundle)
    assert sealed.manifest.state is ReleaseState.VALIDATED
    assert {"report.json", "report.html"} <= set(sealed.manifest.listed)
    assert read_report(job.bundle) == report == read_report(job.reports)
    assert (report.model, report.build_key, report.random_weights) == ("toy", BUILD_KEY, 0)
    assert report.parameters == 3
    assert report.versions == {"torch": "2.13.0"}  # the bundle's own, as it was made


def test_what_an_artifact_says_of_its_proof_cannot_steer_a_terminal(job: Job) -> None:
    """It runs in the process that reports the proof's steps: they are cut and written out."""
    toy_bundle(job)
    steps: list[StepDone] = []

    def judge(*_: object, progress: Callable[[str], None], **__: object) -> ValidationReport:
        progress("program main\x1b]0;owned\x07" + "x" * 1000)
        return toy_judgement()

    with progress_to(steps.append):
        prove(job, toy_records(), judge=judge)
    assert r"program main\x1b]0;owned\x07" in steps[0].text
    assert all(len(step.text) <= 200 and step.text.isprintable() for step in steps)


def test_a_diverging_bundle_stays_lowered(job: Job) -> None:
    """The error names verdict and page; the report is kept, the bundle is not sealed anew."""
    toy_bundle(job)
    with pytest.raises(NotProven) as caught:
        prove(job, toy_records(), judge=lambda *_, **__: toy_judgement(passed=False))
    page = job.reports / "report.html"
    assert str(caught.value) == f"toy: diverged: y of case 0 is off by 0.5. See {page}"
    assert page.is_file()
    assert open_bundle(job.bundle).manifest.state is ReleaseState.LOWERED
    with pytest.raises(StoreError, match="not proven"):
        publish_bundle(job)
    assert open_store(job.store).releases() == []


def test_the_judge_gets_the_bundle_and_the_threads(job: Job) -> None:
    """Latency is measured with the threads that were given."""
    toy_bundle(job)
    seen = []

    def judge(*arguments: object, **options: object) -> object:
        seen.append((arguments, options))
        return toy_judgement()

    prove(job.model_copy(update={"threads": 2}), toy_records(), judge=judge)  # type: ignore[arg-type]
    [((bundle,), options)] = seen
    assert bundle == job.bundle
    assert options["limits"].threads == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("system", "stage", "most", "threads"),
    [
        ("Linux", 3600.0, 900.0, 1),
        ("Linux", 60.0, 60.0, 1),
        ("Plan9", 3600.0, 3240.0, None),
    ],
)
def test_an_emulated_device_has_most_of_the_stages_time_and_all_cores(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    stage: float,
    most: float,
    threads: int | None,
) -> None:
    """A quarter of an hour for this machine's own; nine tenths of the stage for another's."""
    toy_bundle(job)
    monkeypatch.setattr("menagerie.host.platform.system", lambda: system)
    given: list[Limits] = []

    def judge(_: Path, *, limits: Limits, **_more: object) -> ValidationReport:
        given.append(limits)
        return toy_judgement()

    prove(job.model_copy(update={"stage_seconds": stage}), toy_records(), judge=judge)
    assert given[0].seconds == most
    assert given[0].threads == threads


def test_latencies_measured_in_turns_are_the_reports(job: Job) -> None:
    """The judge then measures none, and what it measured before is not compared with eager's."""
    toy_bundle(job)
    records = toy_records()
    lowered = records.lowered.model_copy(update={"artifact_latency": (("main", measured(3.0)),)})
    given: list[Limits] = []

    def judge(_: Path, *, limits: Limits, **_more: object) -> ValidationReport:
        given.append(limits)
        return toy_judgement()

    report = prove(job, records.model_copy(update={"lowered": lowered}), judge=judge)
    assert given[0].measure_seconds == 0
    assert report.validation.programs[0].latency == measured(3.0)
    assert dict(report.eager_latency) == {"main": measured(4.0)}


def test_publishing_puts_the_release_into_the_store(job: Job) -> None:
    """The release is found by its build key, and its size is the record's."""
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    record = publish_bundle(job)
    release = open_store(job.store).find("toy", "cpu", BUILD_KEY)
    assert record.bytes == release.size
    assert record.kept is None


def test_what_a_worker_without_keys_publishes_waits(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a candidate, and says so; where this process may sign, it is a release."""
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    with monkeypatch.context() as worker:
        worker.setenv("MENAGERIE_ROLE", "worker")
        assert publish_bundle(job).candidate
    assert not publish_bundle(job).candidate


def test_an_earlier_release_of_the_build_is_kept_and_said_to_be(job: Job) -> None:
    """Converted again, the store stays as it is; published again for a lost answer, it is ours."""
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    publish_bundle(job)
    assert publish_bundle(job).kept is None
    before = open_store(job.store).find("toy", "cpu", BUILD_KEY)
    shutil.rmtree(job.bundle)
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: _judged(machine="another"))
    assert publish_bundle(job).kept == before.manifest.created
    assert open_store(job.store).find("toy", "cpu", BUILD_KEY) == before


@pytest.mark.parametrize("spoil", [_change_weights, _change_manifest, _add_file, _swap_report])
def test_what_the_run_changes_is_not_sealed(job: Job, spoil: Callable[[Path], None]) -> None:
    """The library runs as this user: neither a file nor the manifest may be other afterwards."""
    toy_bundle(job)

    def judge(bundle: Path, **_: object) -> ValidationReport:
        spoil(bundle)
        return toy_judgement()

    if spoil is _swap_report:  # it is written anew
        prove(job, toy_records(), judge=judge)
        assert "forged" not in (job.bundle / "report.json").read_text()
        return
    with pytest.raises(ArtifactError, match="changed while the bundle was run"):
        prove(job, toy_records(), judge=judge)
    with pytest.raises(ArtifactError):
        open_bundle(job.bundle)
    assert open_store(job.store).releases() == []


@pytest.mark.parametrize("spoil", [_change_weights, _change_manifest, _add_file, _swap_report])
def test_what_a_confirmation_changes_is_not_published(
    job: Job, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """Nor is an old report that was changed taken over; the store keeps the emulated release."""
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: _judged(emulated=True))
    publish_bundle(job)
    release = open_store(job.store).find("toy", "cpu", BUILD_KEY)
    assert release.manifest.state is ReleaseState.EMULATED

    def judge(bundle: Path, **_: object) -> ValidationReport:
        spoil(bundle)
        return toy_judgement()

    with pytest.raises(ArtifactError):
        confirm_release(job.store, release, tmp_path / "work", judge=judge)
    assert open_store(job.store).find("toy", "cpu", BUILD_KEY) == release
