"""Two releases compared, and what keeps a worse one from becoming the latest."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "format"))

from bundle_maker import make_bundle

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle
from menagerie.validation.findings import AccuracyResult
from zoo.report.comparison import Change, RegressionLimits, Side, compare, regressions

if TYPE_CHECKING:
    from menagerie.format.bundle_manifest import BundleManifest
    from zoo.records import ConversionReport

LIMITS = RegressionLimits()


@pytest.fixture
def manifest(tmp_path: Path) -> BundleManifest:
    """Of a tiny bundle, whose library is a megabyte of its few."""
    files = {"programs/main/model.so": bytes(1_000_000)}
    return open_bundle(make_bundle(tmp_path / "bundle", files)).manifest


def grown(manifest: BundleManifest, times: float) -> BundleManifest:
    """The same with a library so many times as large."""
    program = manifest.programs[0]
    library = replace(program.library, bytes=int(program.library.bytes * times))
    files = program.files | {"library": library}
    return replace(manifest, programs=(replace(program, files=files),))


def noisier(report: ConversionReport, decibels: float) -> ConversionReport:
    """The same with all signal-to-noise ratios lower."""
    validation = report.validation
    programs = tuple(
        replace(p, parity=tuple(replace(o, snr_db=o.snr_db - decibels) for o in p.parity))
        for p in validation.programs
    )
    return report.model_copy(update={"validation": replace(validation, programs=programs)})


def slowed(report: ConversionReport, times: float) -> ConversionReport:
    """The same with the artifact slower, eager as before."""
    validation = report.validation
    programs = tuple(
        replace(p, latency=replace(p.latency, median_ms=p.latency.median_ms * times))
        for p in validation.programs
        if p.latency is not None
    )
    return report.model_copy(update={"validation": replace(validation, programs=programs)})


def resized(report: ConversionReport, time: int) -> ConversionReport:
    """The same with all cases of another size."""
    validation = report.validation
    programs = tuple(
        replace(p, cases=tuple(replace(c, dimensions={"time": time}) for c in p.cases))
        for p in validation.programs
    )
    return report.model_copy(update={"validation": replace(validation, programs=programs)})


def accurate(report: ConversionReport, share: float) -> ConversionReport:
    """The same with an accuracy gate."""
    result = AccuracyResult(samples=1000, eager=share, artifact=share)
    return report.model_copy(update={"validation": replace(report.validation, accuracy=result)})


def test_a_release_compared_with_itself_has_no_difference(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """Each figure is the same, and nothing is missing."""
    side = Side(manifest, resnet)
    found = compare(side, side)
    assert {d.change for d in found} == {Change.SAME}
    assert {d.section for d in found} >= {"numerics", "latency", "size", "graph", "passes"}
    assert regressions(side, side, LIMITS) == ()


def test_what_grew_is_worse_and_what_shrank_is_better(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """Bytes in decimal units, by the file's place in the manifest."""
    larger = grown(manifest, 3)
    found = {d.what: d for d in compare(Side(manifest, resnet), Side(larger, resnet))}
    library = found["programs.main.library"]
    assert (library.before, library.after) == ("1.00 MB", "3.00 MB")
    assert library.change is Change.WORSE
    back = {d.what: d for d in compare(Side(larger, resnet), Side(manifest, resnet))}
    assert back["programs.main.library"].change is Change.BETTER
    assert found["weights"].change is Change.SAME


@pytest.mark.parametrize("factor", [1.0003, 1 / 1.0003])
def test_some_hundred_bytes_are_neither_worse_nor_better(
    manifest: BundleManifest, factor: float
) -> None:
    """A report with a longer word in it makes no release another."""
    pair = Side(manifest, None), Side(grown(manifest, factor), None)
    assert {d.change for d in compare(*pair) if d.section == "size"} == {Change.SAME}


@pytest.mark.parametrize(
    ("worse", "what"),
    [
        (lambda m, r: (grown(m, 1.2), r), "size"),
        (lambda m, r: (m, slowed(r, 1.3)), "latency"),
        (lambda m, r: (m, noisier(r, 7.0)), "parity"),
    ],
)
def test_a_regression_beyond_its_limit_is_named(
    manifest: BundleManifest, resnet: ConversionReport, worse: object, what: str
) -> None:
    """One limit at a time: 1.1 times the bytes, 1.25 times the time, 6 dB."""
    assert callable(worse)
    found = regressions(Side(manifest, resnet), Side(*worse(manifest, resnet)), LIMITS)
    assert [each.what for each in found] == [what]
    assert found[0].fact


def test_a_missing_figure_passes_no_limit(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """A report that is missing, or lacks a figure that the latest's has, is a regression."""
    whole = Side(manifest, accurate(resnet, 0.981))
    assert whole.report is not None
    assert [r.what for r in regressions(whole, Side(manifest, None), LIMITS)] == ["report"]
    bare = replace(whole.report.validation, programs=(), accuracy=None)
    report = whole.report.model_copy(update={"validation": bare, "eager_latency": ()})
    silent = Side(manifest, report)
    found = regressions(whole, silent, LIMITS)
    assert [each.what for each in found] == ["latency", "parity", "accuracy"]
    assert all("does not say" in each.fact for each in found)
    assert regressions(Side(manifest, None), whole, LIMITS) == ()
    assert regressions(Side(manifest, None), Side(manifest, None), LIMITS) == ()


def test_an_emulated_candidate_has_no_time_to_compare(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """It never takes a measured release's place, so its latency may be missing."""
    emulated = replace(manifest, state=ReleaseState.EMULATED)
    untimed = resnet.model_copy(update={"eager_latency": ()})
    assert regressions(Side(manifest, resnet), Side(emulated, untimed), LIMITS) == ()


def test_what_stays_within_the_limits_passes(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """A little of each is no regression, and better never is."""
    little = Side(grown(manifest, 1.05), noisier(slowed(resnet, 1.2), 5.0))
    assert regressions(Side(manifest, resnet), little, LIMITS) == ()
    assert regressions(little, Side(manifest, resnet), LIMITS) == ()
    wide = RegressionLimits(slower=4.0)
    assert regressions(Side(manifest, resnet), Side(manifest, slowed(resnet, 3.9)), wide) == ()


def test_times_at_other_sizes_do_not_compare(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """Their shares of eager's time differ whatever the artifacts do."""
    before = Side(manifest, resized(resnet, 8000))
    slow = slowed(resnet, 3.0)
    same, other = (Side(manifest, resized(slow, time)) for time in (8000, 480000))
    assert [each.what for each in regressions(before, same, LIMITS)] == ["latency"]
    assert regressions(before, other, LIMITS) == ()


def test_less_accurate_is_always_a_regression(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """One sample of a thousand is enough."""
    before, after = accurate(resnet, 0.981), accurate(resnet, 0.980)
    found = regressions(Side(manifest, before), Side(manifest, after), LIMITS)
    assert [each.what for each in found] == ["accuracy"]
    assert found[0].fact.startswith("98.1")
    assert regressions(Side(manifest, after), Side(manifest, before), LIMITS) == ()


def test_without_a_report_the_manifests_are_compared(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """Sizes and provenance are known; the rest is neither better nor worse."""
    found = compare(Side(manifest, None), Side(grown(manifest, 2), resnet))
    judged = {d.change for d in found if d.section != "size"}
    assert judged <= {Change.SAME, Change.OTHER}
    assert regressions(Side(manifest, None), Side(manifest, resnet), LIMITS) == ()


def test_imported_shims_that_came_or_went_are_listed(
    manifest: BundleManifest, resnet: ConversionReport
) -> None:
    """By their names, and only those."""
    program = manifest.programs[0]
    other = replace(program, symbols=(*program.symbols, "aoti_torch_cpu_bmm_out"))
    found = compare(Side(manifest, resnet), Side(replace(manifest, programs=(other,)), resnet))
    names = [d.what for d in found if d.section == "kernels" and d.what != "generated"]
    assert names == ["aoti_torch_cpu_bmm_out"]
