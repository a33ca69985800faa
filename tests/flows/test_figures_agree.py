"""One truth for figures: whatever shows a conversion shows the same strings."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from toy_zoo import measured, toy_judgement

from flows.cli import invoke
from flows.cli.output import answer
from flows.cli.progress import shown_results
from flows.results import ModelResult, Outcome, RunResult, results_markdown
from zoo.records import ConversionReport, StageTime
from zoo.report.page import markdown, render_index, render_report

if TYPE_CHECKING:
    from pathlib import Path

NB = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"
FIGURES = {
    "error": f"2.1{NB}10⁻⁶",
    "snr": "123.5 dB",
    "latency": "86.0 ms",
    "ratio": "1.79\N{MULTIPLICATION SIGN} faster than eager",
    "size": "47.1 MB",
    "memory": "142 MB",
    "time": "48 s",
}


@pytest.fixture
def report() -> ConversionReport:
    """86.04 ms against 154.2, of which one is not simply half of the other."""
    judged = toy_judgement()
    [program] = judged.programs
    parity = replace(program.parity[0], max_abs=2.1e-6, snr_db=123.456)
    program = replace(program, parity=(parity,), latency=measured(86.04))
    return ConversionReport(
        model="toy",
        summary="a toy",
        target="cpu",
        build_key="a" * 64,
        source="a test",
        random_weights=None,
        licence="Apache-2.0",
        parameters=3,
        weights_bytes=47_123_456,
        passes=(),
        lowering=(),
        validation=replace(
            judged, programs=(program,), load_ms=19.54, peak_memory_bytes=142_400_000
        ),
        eager_latency=(("main", measured(154.2)),),
        stages=(StageTime(stage="lower", seconds=48.2),),
    )


def plain(html: str) -> str:
    """A page's text."""
    return re.sub(r"<[^>]*>", " ", html)


def test_every_table_has_the_same_figures(
    report: ConversionReport, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command line, the page, the index, and the Markdown of a run and of all runs.

    Sizes are of weights and code on pages, which are among the files; elsewhere of all files.
    """
    row = ModelResult(model="toy", target="cpu", outcome=Outcome.PUBLISHED, seconds=48.2)
    row = row.with_report(report, tmp_path)
    results = RunResult(results=(row,), store="s", seconds=48.2)
    answer(None, *shown_results(results))
    wide = capfd.readouterr().out.replace(" faster", " faster than eager")  # as its column says
    with pytest.MonkeyPatch.context() as narrow:
        narrow.setattr("flows.cli.output._FILE_WIDTH", 50)
        answer(None, *shown_results(results))
    assert {"outcome", "published"} <= set(capfd.readouterr().out.split())  # whole words
    shown = {
        "command line": (wide, {"memory", "size"}),
        "page": (plain(render_report(report)), set()),
        "index": (plain(render_index([(report, "")])), {"memory"}),
        "run": (markdown(report), set()),
        "all runs": (results_markdown([row]), {"memory", "size", "snr"}),
    }
    lacking = {
        f"{place}: {FIGURES[name]}"
        for place, (text, absent) in shown.items()
        for name in FIGURES.keys() - absent
        if FIGURES[name] not in text
    }
    assert lacking == set()


def test_verifying_prints_what_the_report_prints(
    report: ConversionReport,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same judgement by `zoo verify`."""
    monkeypatch.setattr("menagerie.validation.validate", lambda *_, **__: report.validation)
    assert invoke(["verify", str(tmp_path)]) == 0
    printed = capfd.readouterr().out
    for name in ("error", "snr", "latency", "memory"):
        assert FIGURES[name] in printed
    assert "load 19.5 ms" in printed


def test_an_emulated_latency_is_nowhere(report: ConversionReport, tmp_path: Path) -> None:
    """Neither it nor what it would be against eager."""
    emulated = report.model_copy(update={"validation": replace(report.validation, emulated=True)})
    row = ModelResult(model="toy", target="metal", outcome=Outcome.PUBLISHED)
    row = row.with_report(emulated, tmp_path)
    assert (row.latency_ms, row.ratio) == (None, None)
    assert "eager |  |" not in results_markdown([row])
    assert "faster" not in results_markdown([row]) + markdown(emulated)
