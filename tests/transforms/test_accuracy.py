"""Eager's accuracy on a gate's samples, and the artifact's, in every floating type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from menagerie.format.bundle_manifest import AccuracyData, BundleProgram, TensorSpec, unsealed
from menagerie.numerics import Dtype
from menagerie.validation.checks import LoadedProgram, accuracy
from transforms.eager import accuracy_gate, eager_program
from zoo.errors import ArtifactError, SourceError
from zoo.spec import AccuracyGate, Licence, ModelSpec, ProgramSpec, TorchvisionSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from menagerie.speech.recogniser import Program

CLASSES, FEATURES, SAMPLES, BATCH = 5, 8, 23, 4
GATE = AccuracyGate(data="gate.safetensors", batch=BATCH)


class Scores(torch.nn.Module):
    """Half of its scores are negative: as bits, negative numbers are larger than positive ones."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(FEATURES, CLASSES).to(dtype)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Scores [N, 5] of features [N, 8]."""
        return {"logits": self.layer(x)}


class EagerSession:
    """Runs the model as a session of the runtime would: numpy in and out, bfloat16 as its bits."""

    keeps_state = False

    def __init__(self, model: torch.nn.Module, dtype: Dtype) -> None:
        self._model, self._dtype = model, dtype

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Refuses another dtype than the program's, and another size than its batch."""
        x = torch.from_numpy(inputs["x"].copy())
        if self._dtype is Dtype.BFLOAT16:
            assert inputs["x"].dtype == np.uint16
            x = x.view(torch.bfloat16)
        assert x.dtype is getattr(torch, self._dtype.value)
        assert len(x) == BATCH
        with torch.no_grad():
            logits = self._model(x)["logits"]
        if self._dtype is Dtype.BFLOAT16:
            return {"logits": logits.view(torch.int16).numpy().view(np.uint16)}
        return {"logits": logits.numpy()}


def spec(**program: Any) -> ModelSpec:
    """An entry whose program takes x, declared float32."""
    shape = {"inputs": [{"name": "x", "shape": [BATCH, FEATURES]}]}
    return ModelSpec(
        summary="scores",
        source=TorchvisionSource(kind="torchvision", builder="resnet18"),
        programs=(ProgramSpec.model_validate(shape | program),),
        licence=Licence(spdx="Apache-2.0"),
    )


def loaded(model: torch.nn.Module, dtype: Dtype) -> Program:
    """The program as if its artifact were perfect."""
    entry = BundleProgram(
        name="main",
        files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
        golden_cases=1,
        inputs=(TensorSpec(name="x", dtype=dtype, shape=(BATCH, FEATURES)),),
        outputs=(TensorSpec(name="logits", dtype=dtype, shape=(BATCH, CLASSES)),),
        dimensions={},
        constants={},
        symbols=(),
    )
    session: Any = EagerSession(model, dtype)
    return LoadedProgram(entry, session, None).in_sequence()  # type: ignore[arg-type]


def gate_data(eager: float, output: str = "") -> AccuracyData:
    """The gate as the bundle has it."""
    return AccuracyData(program="main", output=output, batch=BATCH, eager_accuracy=eager)


def written(path: Path, **changes: torch.Tensor) -> Path:
    """The gate's samples, in float32; `changes` replace its tensors."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    save_file({"x": x, "labels": labels} | changes, path)
    return path


@pytest.mark.parametrize("dtype", [d for d in Dtype if d.is_floating])
def test_eager_and_artifact_count_alike(tmp_path: Path, dtype: Dtype) -> None:
    """Both round samples in float32 to the model's type, and compare scores as numbers."""
    kind = getattr(torch, dtype.value)
    model = Scores(kind).eval()
    path = written(tmp_path / "gate.safetensors")
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(SAMPLES, FEATURES, generator=generator).to(kind)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    with torch.no_grad():
        right = int((model(x)["logits"].argmax(-1) == labels).sum())
    assert 0 < right < SAMPLES
    eager = accuracy_gate(
        eager_program(model, spec().programs[0]), GATE, path, judges=False
    ).facts.eager_accuracy
    assert eager == right / SAMPLES
    found = accuracy(loaded(model, dtype), gate_data(eager), path)
    assert (found.samples, found.artifact, found.passed) == (SAMPLES, eager, True)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        (
            {"labels": torch.zeros(0, dtype=torch.int64), "x": torch.zeros(0, FEATURES)},
            "no samples",
        ),
        ({"x": torch.zeros(3, FEATURES)}, r"has shape \[3, 8\]"),
        ({"x": torch.zeros(SAMPLES, FEATURES, dtype=torch.int64)}, "is int64, the program takes"),
    ],
    ids=["empty", "too few", "integers"],
)
def test_data_that_cannot_judge_is_refused(
    tmp_path: Path, changes: Mapping[str, torch.Tensor], fact: str
) -> None:
    """By the conversion, and again by verifying the bundle."""
    path = written(tmp_path / "gate.safetensors", **changes)
    model = Scores(torch.float32).eval()
    with pytest.raises(SourceError, match=fact):
        accuracy_gate(eager_program(model, spec().programs[0]), GATE, path, judges=False)
    with pytest.raises(ArtifactError, match=fact):
        accuracy(loaded(model, Dtype.FLOAT32), gate_data(1.0), path)


def test_a_gate_names_an_output_that_exists(tmp_path: Path) -> None:
    """Otherwise the error says which there are."""
    path = written(tmp_path / "gate.safetensors")
    model = Scores(torch.float32).eval()
    gate = GATE.model_copy(update={"output": "scores"})
    with pytest.raises(SourceError, match=r"has no output 'scores'.*It has: logits"):
        accuracy_gate(eager_program(model, spec().programs[0]), gate, path, judges=False)
    with pytest.raises(ArtifactError, match="has no output 'scores'"):
        accuracy(loaded(model, Dtype.FLOAT32), gate_data(1.0, "scores"), path)


def test_a_gate_that_eager_never_passes_is_refused(tmp_path: Path) -> None:
    """Labels that no sample gets would be judged 0 = 0."""
    path = written(tmp_path / "gate.safetensors", labels=torch.full((SAMPLES,), CLASSES))
    program = eager_program(Scores(torch.float32).eval(), spec().programs[0])
    with pytest.raises(SourceError, match="judges none of 23 samples right"):
        accuracy_gate(program, GATE, path, judges=False)
