"""Only a proven bundle is sealed as validated, and only such a one reaches the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from toy_zoo import BUILD_KEY, toy_bundle, toy_evidence, toy_judgement

from tasks.publish import publish_bundle
from tasks.validate import NotProven, prove
from zoo.artifact.bundle import open_bundle
from zoo.artifact.manifest import ReleaseState
from zoo.errors import StoreError
from zoo.report import read_report
from zoo.store import open_store

if TYPE_CHECKING:
    from tasks.job import Job


def test_a_proven_bundle_is_sealed_with_its_report(job: Job) -> None:
    """State validated, every file hashed, the report in the bundle and beside it."""
    toy_bundle(job)
    report = prove(job, toy_evidence(), judge=lambda *_, **__: toy_judgement())
    sealed = open_bundle(job.bundle)
    assert sealed.manifest.state is ReleaseState.VALIDATED
    assert {"report.json", "report.html"} <= set(sealed.manifest.files)
    assert read_report(job.bundle) == report == read_report(job.reports)
    assert (report.model, report.build_key, report.random_weights) == ("toy", BUILD_KEY, 0)
    assert report.parameters == 3
    assert report.versions == {"torch": "2.13.0"}  # the bundle's own, as it was made


def test_a_diverging_bundle_stays_lowered(job: Job) -> None:
    """The error names verdict and page; the report is kept, the bundle is not sealed anew."""
    toy_bundle(job)
    with pytest.raises(NotProven) as caught:
        prove(job, toy_evidence(), judge=lambda *_, **__: toy_judgement(passed=False))
    page = job.reports / "report.html"
    assert str(caught.value) == f"toy: diverged: y of case 0 is off by 0.5. See {page}"
    assert page.is_file()
    assert open_bundle(job.bundle).manifest.state is ReleaseState.LOWERED
    with pytest.raises(StoreError, match="not proven"):
        publish_bundle(job)
    assert open_store(job.store).releases() == []


def test_the_judge_gets_the_bundle_and_the_threads(job: Job) -> None:
    """Latency is measured with the threads that were asked for."""
    toy_bundle(job)
    seen = []

    def judge(*arguments: object, **options: object) -> object:
        seen.append((arguments, options))
        return toy_judgement()

    prove(job.model_copy(update={"threads": 2}), toy_evidence(), judge=judge)  # type: ignore[arg-type]
    [((bundle,), options)] = seen
    assert bundle == job.bundle
    assert options["limits"].threads == 2  # type: ignore[attr-defined]


def test_publishing_puts_the_release_into_the_store(job: Job) -> None:
    """The release is found by its build key, and its size is the record's."""
    toy_bundle(job)
    prove(job, toy_evidence(), judge=lambda *_, **__: toy_judgement())
    record = publish_bundle(job)
    release = open_store(job.store).find("toy", "cpu", BUILD_KEY)
    assert record.bytes == release.size
