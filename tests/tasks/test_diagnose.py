"""What is searched after a failed validation, and how the report shows it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from toy_zoo import ToyModel, toy_bundle, toy_divergence, toy_job, toy_judgement, toy_records

from menagerie.validation.findings import ValidationReport, Verdict
from tasks.failures import ProcessDied
from tasks.prove import NotProven, prove
from tasks.stage_table import diagnose, search_command
from transforms.stages import Stage
from zoo.manifest import OUR_MODELS
from zoo.report.files import read_report
from zoo.report.page import markdown
from zoo.report.summary import cause
from zoo.spec import ProgramSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tasks.job import Job
    from zoo.records import ConversionReport


def _judgement(verdict: Verdict, **changes: object) -> ValidationReport:
    failed = toy_judgement(passed=False)
    return replace(failed, **{"verdict": verdict, **changes})


@pytest.fixture
def pair(tmp_path: Path) -> Job:
    """Of an entry with the programs `main` and `decoder`."""
    inputs = [{"name": "x", "shape": [1, 3]}]
    programs = tuple(
        ProgramSpec.model_validate({"name": name, "inputs": inputs}) for name in ("main", "decoder")
    )
    job = toy_job(tmp_path)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"programs": programs})})


def test_what_searches_for_the_cause_is_as_it_is_typed(job: Job) -> None:
    """With the model's seed and the manifest that it is in, quoted for a shell."""
    job = job.model_copy(update={"origin": job.folder / "my models" / "a.yaml", "seed": 3})
    words = shlex.split(search_command(job))
    assert words[:6] == ["zoo", "debug", "bisect", "toy", "--target", job.target]
    assert words[6:8] == ["--random-weights", "3"]
    assert words[8:10] == ["--manifest", str(job.folder / "my models")]
    ours = job.model_copy(update={"origin": OUR_MODELS / "resnet.yaml", "seed": None})
    assert search_command(ours) == f"zoo debug bisect toy --target {job.target}"


def test_the_case_that_failed_is_searched(job: Job) -> None:
    """One program was judged, and its case 0 is out of tolerance."""
    assert job.suspected(toy_judgement(passed=False)) == (("main", 0),)


def test_what_was_not_judged_is_searched_with_every_case(pair: Job) -> None:
    """The crash came after `main` was judged and found right: `decoder` is the suspect."""
    [main] = toy_judgement().programs
    crashed = _judgement(Verdict.CRASHED, programs=(main,))
    assert pair.suspected(crashed) == (("decoder", None),)
    at_once = _judgement(Verdict.REFUSED, programs=())
    assert [name for name, _ in pair.suspected(at_once)] == ["main", "decoder"]


def test_without_a_wrong_output_every_program_is_tried(pair: Job) -> None:
    """Two runs that differ, or an accuracy that was missed, name no program."""
    [main] = toy_judgement().programs
    both = (main, replace(main, program="decoder"))
    differing = _judgement(Verdict.DIVERGED, programs=both)
    assert [*pair.suspected(differing)] == [("main", 0), ("decoder", 0)]


@pytest.mark.parametrize("verdict", [Verdict.TIMED_OUT, Verdict.PASSED])
def test_some_verdicts_need_no_search(job: Job, verdict: Verdict) -> None:
    """What never ends cannot be searched by running it again and again."""
    assert job.suspected(_judgement(verdict)) == ()


def _failed(job: Job) -> ConversionReport:
    toy_bundle(job)
    with pytest.raises(NotProven) as caught:
        prove(job, toy_records(), judge=lambda *_, **__: toy_judgement(passed=False))
    return caught.value.report


def test_the_report_names_node_pass_and_command(job: Job) -> None:
    """JSON, page and Markdown all say where it goes wrong and how to see it again."""
    report = diagnose(ToyModel(job), job, _failed(job), toy_records())
    assert read_report(job.reports) == report
    assert report.diagnosis is not None
    assert report.diagnosis.divergence == toy_divergence(job)
    page = (job.reports / "report.html").read_text()
    for text in (page, markdown(report).replace("\\", "")):
        for word in ("conv2d_3", "fold_batch_norm", "layer1.0.conv2", str(job.reproducer)):
            assert word in text
    assert "made wrong by the pass fold_batch_norm" in cause(report.diagnosis)


@pytest.mark.parametrize(
    "fault", [ProcessDied("toy", "its process died in locate (SIGKILL)"), ZeroDivisionError("oops")]
)
def test_a_search_that_fails_never_hides_the_verdict(job: Job, fault: Exception) -> None:
    """The report says that it ended early, and why; the figures are all there."""
    failed = _failed(job)
    report = diagnose(ToyModel(job, {Stage.LOCATE: fault}), job, failed, toy_records())
    assert report.validation == failed.validation
    assert report.diagnosis is not None
    assert report.diagnosis.divergence is None
    assert "ended early" in report.diagnosis.detail
    assert str(fault).split(": ")[-1] in (job.reports / "report.html").read_text()


def test_the_reproducer_of_an_earlier_conversion_goes(job: Job) -> None:
    """What is beside a report belongs to it."""
    job.reproducer.mkdir(parents=True)
    (job.reproducer / "program.pt2").write_text("old")
    _failed(job)
    assert not job.reproducer.exists()
