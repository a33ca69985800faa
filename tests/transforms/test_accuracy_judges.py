"""The largest loss of accuracy against float32, by which `convert` judges a low precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import menagerie
from transforms import convert
from zoo.errors import SourceError, UsageError, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

CLASSES, FEATURES, SAMPLES = 10, 32, 200


class Nearest(torch.nn.Module):
    """Scores of points by their classes' centres; the last feature is large and has no weight."""

    def __init__(self) -> None:
        super().__init__()
        centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
        centres[:, -1] = 0.0
        self.layer = torch.nn.Linear(FEATURES, CLASSES, bias=False)
        self.layer.weight = torch.nn.Parameter(centres)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores [n, 10] of points [n, 32]."""
        return self.layer(x)


def points(outlier: float) -> dict[str, torch.Tensor]:
    """Points around the centres, with their labels, by the outlier that eight bits must span."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    noise = torch.randn(SAMPLES, FEATURES, generator=generator)
    x = Nearest().layer.weight.detach()[labels] + 0.8 * noise
    x[:, -1] = outlier
    return {"x": x, "labels": labels}


def converted(out: Path, data: dict[str, torch.Tensor], accuracy: Any, **more: Any) -> Any:
    """The model in int8, of any number of points, without times."""
    n = torch.export.Dim("n", max=64)
    more = {"precision": "int8", **more}
    return convert(
        Nearest().eval(), (data["x"][:5],), dynamic_shapes=({0: n},), out=out,
        names={"inputs": ["x"]}, accuracy=accuracy, measure_seconds=0, **more,
    )  # fmt: skip


def right(scores: Any, data: dict[str, torch.Tensor]) -> int:
    """How many points have their label's score highest."""
    return int((np.argmax(np.asarray(scores), -1) == data["labels"].numpy()).sum())


def test_accuracy_stands_in_for_the_tolerances_of_a_low_precision(tmp_path: Path) -> None:
    """What SNR refuses is published where it loses little; the counts are eager's and its own."""
    data = points(outlier=750.0)
    with pytest.raises(ValidationError, match="SNR"):
        converted(tmp_path / "by_snr", data, None)
    made = converted(tmp_path / "m", data, {"data": data, "max_degradation": 0.08})
    gate = made.report.validation.accuracy
    with menagerie.open(made.folder) as session:
        parts = [session.run({"x": part.numpy()}) for part in data["x"].split(40)]
    own = right(np.concatenate([next(iter(part.values())) for part in parts]), data)
    with torch.no_grad():
        eager = right(Nearest()(data["x"]), data)
    assert (gate.samples, gate.artifact, gate.eager) == (SAMPLES, own / 200, eager / 200)
    assert gate.judges
    assert eager - own <= gate.slack == 16  # 0.08 of 200
    assert made.report.worst_snr_db < 12
    assert (made.manifest.accuracy.slack, made.manifest.accuracy.batch) == (16, 64)


@pytest.mark.parametrize("loss", [{"max_degradation": 0.02}, {"percent_max_degradation": 2}])
def test_a_larger_loss_refuses(tmp_path: Path, loss: dict[str, float]) -> None:
    """The error says both accuracies and what may be lost; nothing is left behind."""
    data = points(outlier=1500.0)
    with pytest.raises(ValidationError, match=r"accuracy 0\.\d+ on 200 samples .* eager's 0\.\d+"):
        converted(tmp_path / "m", data, {"data": data, **loss})
    assert not list(tmp_path.iterdir())


def test_float32_is_as_accurate_as_eager(tmp_path: Path) -> None:
    """A largest loss is a low precision's: float32 keeps its tolerances and loses nothing."""
    data = points(outlier=1.0)
    accuracy = {"data": data, "max_degradation": 0.05}
    made = converted(tmp_path / "m", data, accuracy, precision="float32")
    gate = made.report.validation.accuracy
    assert (gate.artifact, gate.slack, gate.judges) == (gate.eager, 0, False)
    assert made.report.worst_snr_db > 80


@pytest.mark.parametrize(
    ("accuracy", "kind", "words"),
    [
        ({}, UsageError, "`data` is neither a file nor tensors by name"),
        ({"data": {"x": [1.0]}}, UsageError, "`data` is neither a file nor tensors by name"),
        ({"data": "a", "metrics": "top-1"}, UsageError, r"accuracy\.metrics: .*metric, program"),
        ({"data": "a", "metric": "top-5"}, UsageError, r"accuracy\.metric: "),
        ({"data": "a", "max_degradation": 2}, UsageError, r"max_degradation: .*less than 1"),
        (
            {"data": "a", "max_degradation": 0.1, "percent_max_degradation": 1},
            UsageError,
            "give one of `max_degradation` and",
        ),
        ({"data": "a", "program": "other"}, UsageError, "no program 'other'. There are: main"),
        ({"data": {"x": torch.zeros(3, 32)}}, SourceError, "^accuracy: lacks 'labels'. It has: x$"),
        (
            {"data": {"x": torch.zeros(3, 32), "labels": torch.zeros(3, 1, dtype=torch.int64)}},
            SourceError,
            r"^accuracy: has labels of shape \[3, 1\], the program decides \[3\]",
        ),
        (
            {"data": {"x": torch.zeros(3, 32), "labels": torch.zeros(3, CLASSES)}},
            SourceError,
            r"labels of shape \[3, 10\]",
        ),
        (
            {"data": {"x": torch.zeros(3, 31), "labels": torch.zeros(3)}},
            SourceError,
            r"^accuracy: x has shape \[3, 31\], the program takes \[n, 32\]",
        ),
        ({"data": "/absent"}, SourceError, "absent"),
    ],
)
def test_a_gate_that_cannot_judge_is_refused(
    tmp_path: Path, accuracy: Any, kind: type[Exception], words: str
) -> None:
    """Before anything is compiled, by the name of what is wrong."""
    with pytest.raises(kind, match=words):
        converted(tmp_path / "m", points(1.0), accuracy)
    assert not list(tmp_path.iterdir())
