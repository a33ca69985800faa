"""A real model, really miscompiled: its failed validation leads to the node and the pass."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from menagerie.validation.findings import Verdict
from tasks.job import Job, StageRecords
from tasks.model_stages import ModelStages
from tasks.prove import NotProven, prove
from tasks.stage_table import EXPORT, LOWER, PULL, TRANSFORM, diagnose
from transforms import pipeline
from transforms.bisect.__main__ import main as rerun
from transforms.loading import read_program
from transforms.lowering import cpu
from transforms.passes.fold_batch_norm import FoldBatchNorm
from zoo.manifest import load_manifest
from zoo.records import DivergenceStage

if TYPE_CHECKING:
    from pathlib import Path

    from transforms.graph.editor import ProgramEditor
    from transforms.graph.graph_pass import Journal
    from transforms.lowering.inductor import GeneratedCode
    from zoo.records import ConversionReport

aten = torch.ops.aten
_ADDMM = re.compile(r"(aoti_torch_cpu_addmm_out\([^;]*), 1L, 1L\)")


@pytest.fixture
def digits(tmp_path: Path) -> Job:
    """A job for the zoo's smallest model, with its trained weights."""
    zoo = load_manifest()
    folder = tmp_path / "work"
    folder.mkdir()
    return Job(
        model="digits_cnn",
        target="cpu",
        spec=zoo.spec("digits_cnn"),
        origin=zoo.origins["digits_cnn"].file,
        build_key="a" * 64,
        store=str(tmp_path / "store"),
        folder=folder,
        reports=tmp_path / "reports",
        log=tmp_path / "log",
    )


class _Spoils(FoldBatchNorm):
    """Folds as it should, and moves the bias of the second convolution by a half."""

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        super().rewrite(editor, journal)
        [bias] = [
            node.args[2]
            for node in editor.calls(aten.conv2d.default)
            if node.users and node.meta["val"].shape[1] == 32
        ]
        editor.set_constant(bias, editor.constant(bias) + 0.5)


def _convert(job: Job) -> ConversionReport:
    """Convert, let the proof fail, and search for the cause with the same model."""
    with ModelStages(job) as model:
        pulled = model.run(PULL)
        model.run(EXPORT)
        records = StageRecords(
            pulled=pulled, transformed=model.run(TRANSFORM), lowered=model.run(LOWER), stages=()
        )
        with pytest.raises(NotProven) as caught:
            prove(job, records)
        assert caught.value.report.validation.verdict is Verdict.DIVERGED
        return diagnose(model, job, caught.value.report, records)


def test_a_wrong_pass_is_named(digits: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names the pass, the node and its module; the reproducer depends on the pass."""
    whole = pipeline._PASSES
    spoilt = tuple(_Spoils if p is FoldBatchNorm else p for p in whole)
    monkeypatch.setattr(pipeline, "_PASSES", spoilt)
    report = _convert(digits)
    assert report.diagnosis is not None
    found = report.diagnosis.divergence
    assert found is not None
    assert (found.stage, found.pass_name) == (DivergenceStage.PASSES, "fold_batch_norm")
    assert found.operator == "aten.conv2d.default"
    assert found.module_path == "model.features.3"
    assert found.max_abs == pytest.approx(0.5, abs=1e-4)
    page = (digits.reports / "report.html").read_text()
    assert found.node in page
    assert "first to diverge" in page  # in the picture of the graph
    assert rerun([str(found.reproducer)]) == 1
    monkeypatch.setattr(pipeline, "_PASSES", whole)
    assert rerun([str(found.reproducer)]) == 0


@pytest.mark.sweep  # four lowerings
def test_a_wrong_lowering_is_named(digits: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias that counts double in the lowered matrix product: the linear layer is named."""
    generate = cpu.generate_code

    def wrong(*arguments: Any, **options: Any) -> GeneratedCode:
        code = generate(*arguments, **options)
        return dataclasses.replace(code, wrapper=_ADDMM.sub(r"\1, 1L, 2L)", code.wrapper))

    monkeypatch.setattr(cpu, "generate_code", wrong)
    report = _convert(digits)
    assert report.diagnosis is not None
    found = report.diagnosis.divergence
    assert found is not None
    assert (found.stage, found.pass_name) == (DivergenceStage.LOWERING, None)
    assert (found.operator, found.module_path) == ("aten.linear.default", "model.classifier")
    assert found.reproducer == digits.reproducer
    program = read_program(digits.reproducer / "program.pt2", unpickle=True)
    assert len([n for n in program.graph.nodes if n.op == "call_function"]) == 1
