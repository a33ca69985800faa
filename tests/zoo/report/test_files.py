"""Reports on disk: complete, strict JSON, and read back with one-line complaints."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from zoo.errors import ArtifactError, StoreError
from zoo.report.files import read_report, write_report
from zoo.report.summary import summarise

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.records import ConversionReport


def test_a_report_survives_the_disk(tmp_path: Path, transducer: ConversionReport) -> None:
    """What is written is read back equal, infinite SNR included; no other file is left."""
    page = write_report(transducer, tmp_path / "made" / "on the way")
    assert page == tmp_path / "made" / "on the way" / "report.html"
    assert read_report(page.parent) == transducer
    assert sorted(p.name for p in page.parent.iterdir()) == ["report.html", "report.json"]


def test_a_report_of_an_older_version_is_read(tmp_path: Path, resnet: ConversionReport) -> None:
    """It knows neither an output's scale nor what it passed by; its page shows its own bounds."""
    old = json.loads(resnet.model_dump_json())
    for parity in old["validation"]["programs"][0]["parity"]:
        del parity["scale"], parity["passed_by"]
    (tmp_path / "report.json").write_text(json.dumps(old), encoding="utf-8")
    page = write_report(read_report(tmp_path), tmp_path).read_text(encoding="utf-8")
    assert "≤ 10⁻⁴ or ≥ 80 dB</td>" in page


def test_the_json_is_strict(tmp_path: Path, transducer: ConversionReport) -> None:
    """Infinity is a string: a strict reader in any language takes the file."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    write_report(transducer, tmp_path)
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=refuse)["model"] == "parakeet_tdt_small"
    assert '"snr_db": "Infinity"' in text


def test_writing_twice_replaces(
    tmp_path: Path, resnet: ConversionReport, crashed: ConversionReport
) -> None:
    """A later report takes the earlier one's place."""
    write_report(resnet, tmp_path)
    write_report(crashed, tmp_path)
    assert read_report(tmp_path) == crashed


def test_no_report_and_no_json(tmp_path: Path) -> None:
    """A missing and a malformed report are named, with what to do."""
    with pytest.raises(ArtifactError, match=r"report\.json: cannot be read \(no such file"):
        read_report(tmp_path)
    (tmp_path / "report.json").write_text('{"model": 3}', encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"is not a conversion report \(model: .*\)\. Convert"):
        read_report(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path, resnet: ConversionReport) -> None:
    """A file in the way is the store's one-line error, not a traceback."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="file"):
        write_report(resnet, tmp_path / "file" / "report")


def test_the_summary_adds_up(transducer: ConversionReport, crashed: ConversionReport) -> None:
    """Times and bytes are sums over programs; what was not measured is None."""
    row = summarise(transducer)
    assert row.artifact_ms == pytest.approx(81.0 + 1.9 + 3.2)
    assert row.eager_ms == pytest.approx(124.0 + 1.7 + 4.0)
    assert row.bytes == 54_800_000 + 1_420_000 + 240_000 + 150_000
    assert row.worst_abs == pytest.approx(1.2e-5)
    assert row.worst_snr_db is not None
    assert math.isfinite(row.worst_snr_db)
    assert row.ratio == pytest.approx((81.0 + 1.9 + 3.2) / (124.0 + 1.7 + 4.0))
    failed = summarise(crashed)
    assert (failed.worst_abs, failed.worst_snr_db, failed.artifact_ms) == (None, None, None)


def compared(report: ConversionReport, **eager: object) -> float | None:
    """The ratio when eager's measurement of the first program has other fields."""
    name, measured = report.eager_latency[0]
    changed = ((name, replace(measured, **eager)), *report.eager_latency[1:])
    return summarise(report.model_copy(update={"eager_latency": changed})).ratio


def test_only_like_is_compared_with_like(
    resnet: ConversionReport, transducer: ConversionReport
) -> None:
    """Other threads, or another case of a dynamic program, make no ratio; fixed shapes do."""
    assert compared(resnet, threads=1) is None
    assert compared(transducer, case=1) is None
    assert compared(transducer, case=None) is None
    assert compared(resnet, case=None) == pytest.approx(23.4 / 34.9)


def test_one_thread_is_compared_by_processor_time(resnet: ConversionReport) -> None:
    """A machine that was busy during one of the measurements does not decide which is faster."""
    program = resnet.validation.programs[0]
    quiet = {"threads": 1, "processor_ms": 40.0, "median_ms": 40.4}
    assert program.latency is not None
    judged = replace(program, latency=replace(program.latency, **quiet))
    validation = replace(resnet.validation, programs=(judged,))
    report = resnet.model_copy(update={"validation": validation})
    busy = {"threads": 1, "processor_ms": 60.0, "median_ms": 120.0}
    assert compared(report, **busy) == pytest.approx(40.0 / 60.0)
    assert compared(report, **(busy | {"processor_ms": None})) == pytest.approx(40.4 / 120.0)
