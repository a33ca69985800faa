"""A target that this file alone defines: all there is to adding one that shares a runtime."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from flows.batches import pool_of
from flows.cli import invoke
from flows.parameters import ConversionOptions
from flows.plan import PlannedModel, plan
from menagerie.format.folder import open_bundle
from tasks.job import Job, StageRecords
from tasks.model_stages import ModelStages
from tasks.prove import prove
from tasks.publish import publish_bundle
from tasks.stage_table import EXPORT, LOWER, PULL, TRANSFORM
from transforms import targets
from transforms.lowering import cpu
from transforms.lowering.toolchain import Compiler, find_compiler
from transforms.targets import PassItem, all_targets, register, target_named
from transforms.targets.cpu import CpuTarget
from zoo.errors import Check, Health, ManifestError, UsageError
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.export import ExportedProgram

    from transforms.lowering.result import LoweredProgram

MODELS = Path(__file__).parents[2] / "zoo" / "models"


class PlainTarget(CpuTarget):
    """The CPU with two graph passes of its own choice, and one more definition for the compiler."""

    name = "plain"
    summary = "The CPU, converted in a plain way"
    passes: ClassVar[tuple[PassItem, ...]] = ("fold_batch_norm", "remove_dead_code")

    def lower(
        self, program: ExportedProgram, bundle: Path, *, name: str = "main"
    ) -> LoweredProgram:
        """See `Target.lower`."""
        library = bundle / "programs" / name / "model.so"
        library.parent.mkdir(parents=True)
        host = find_compiler()
        compiler = Compiler(host.path, host.version, ("-DPLAIN_TARGET",))
        return cpu.lower(program, library, name=name, compiler=compiler)

    def versions(self) -> Mapping[str, str]:
        """See `Target.versions`."""
        return {"plain": "1"}

    def checks(self) -> Iterator[Check]:
        """See `Target.checks`."""
        yield Check(self.name, Health.OK, "as plain as can be")


@pytest.fixture(autouse=True)
def own_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers, ends with it."""
    monkeypatch.setattr(targets, "_KNOWN", dict(targets._KNOWN))


def models_for(target: str, folder: Path) -> Path:
    """A manifest's folder in which digits_cnn is for `target` alone."""
    folder.mkdir()
    text = (MODELS / "digits.yaml").read_text()
    text = text.replace("[cpu]", f"[{target}]")  # of a precision
    text = text.replace("    precisions:", f"    targets: [{target}]\n    precisions:", 1)
    assert f"    targets: [{target}]" in text
    (folder / "digits.yaml").write_text(text)
    shutil.copytree(MODELS / "digits", folder / "digits")
    return folder


def planned(tmp_path: Path) -> PlannedModel:
    """digits_cnn for the target, as the flows plan it."""
    models = models_for("plain", tmp_path / "models")
    options = ConversionOptions(store=str(tmp_path / "store"), manifest=str(models))
    [found] = plan(["digits_cnn"], ["plain"], options)
    return found


def test_it_is_known_wherever_targets_are(capfd: pytest.CaptureFixture[str]) -> None:
    """To the registry, the fan-out, the command line and the doctor; the others remain."""
    with pytest.raises(UsageError, match="Known: cpu, metal"):
        target_named("plain")
    plain = register(PlainTarget())
    assert target_named("plain") is plain
    assert pool_of("plain") == "linux-cpu"
    assert plain.platform.startswith("plain-")
    assert {"cpu", "metal", "plain"} <= set(all_targets())
    assert invoke(["report", "digits_cnn", "--target", "fancy"]) == 2
    assert "Known: cpu, metal, plain" in " ".join(capfd.readouterr().err.split())


def test_an_unknown_target_in_a_manifest_is_reported_with_its_line(tmp_path: Path) -> None:
    """Before anything is done, with the nearest known name."""
    models = models_for("metall", tmp_path / "models")
    options = ConversionOptions(store=str(tmp_path / "store"), manifest=str(models))
    with pytest.raises(ManifestError, match=r"digits.yaml:\d+: .*'metall' is not a target; did"):
        plan(["digits_cnn"], [], options)


def test_a_distribution_of_its_own_may_bring_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the entry points `menagerie.targets`, with nothing of ours touched."""
    info = tmp_path / "plain_target-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plain-target\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[menagerie.targets]\nplain = plain_target:PlainTarget\n"
    )
    monkeypatch.setitem(sys.modules, "plain_target", sys.modules[__name__])
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(target_named("plain"), PlainTarget)


@pytest.mark.sweep
def test_it_converts_a_model_of_the_zoo(tmp_path: Path) -> None:
    """digits_cnn is lowered, proven by goldens and gate, published, and pulled again."""
    register(PlainTarget())
    found = planned(tmp_path)
    job = Job(
        model=found.model,
        target=found.target,
        spec=found.spec,
        origin=found.origin,
        build_key=found.build_key,
        store=str(tmp_path / "store"),
        folder=tmp_path / "work",
        reports=tmp_path / "reports",
        log=tmp_path / "log",
    )
    with ModelStages(job) as model:
        pulled = model.run(PULL)
        model.run(EXPORT)
        transformed, lowered = model.run(TRANSFORM), model.run(LOWER)
    records = StageRecords(pulled=pulled, transformed=transformed, lowered=lowered, stages=())
    report = prove(job, records)
    publish_bundle(job, records)
    assert report.validation.passed
    assert report.validation.accuracy is not None
    assert [r.name for log in report.passes for r in log.records] == list(PlainTarget.passes)
    store = open_store(job.store)
    bundle = open_bundle(store.pull(store.find("digits_cnn", "plain"), tmp_path / "out")).manifest
    assert (bundle.target, bundle.runtime) == ("plain", "cpu")
    assert bundle.platform == PlainTarget().platform
    assert bundle.versions["plain"] == "1"
    assert json.loads((tmp_path / "out" / "report.json").read_text())["target"] == "plain"
    [again] = plan(["digits_cnn"], ["plain"], _options(job))
    assert again.stored is not None


def _options(job: Job) -> ConversionOptions:
    return ConversionOptions(store=job.store, manifest=str(job.origin.parent))
