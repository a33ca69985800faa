"""Precision int8-static: what weights meet is measured on samples; what is beyond is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from menagerie.session import Session
from transforms import convert
from transforms.goldens.entry import samples
from zoo.errors import SourceError, UsageError
from zoo.spec import InputSpec, ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.floating]

_LARGEST = 4.0


class _Net(nn.Module):
    """A convolution and a linear layer, each seen alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = nn.Conv2d(8, 24, 3, bias=False)
        self.rows = nn.Linear(64, 40, bias=False)

    def forward(self, image: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.image(image), self.rows(rows)


def _sample(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    image, rows = (
        torch.rand(2, 8, 9, 7, generator=generator),
        torch.rand(6, 64, generator=generator),
    )
    return image * 3 - 1, rows * 2


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calibrated on images from -1 to 2 and rows up to 2, and one of each that is larger."""
    calibration = [_sample(seed) for seed in range(3)]
    calibration[1][0].view(-1)[5], calibration[2][1].view(-1)[7] = _LARGEST, -_LARGEST
    made = convert(
        _Net().eval().requires_grad_(requires_grad=False),
        _sample(9),
        precision="int8-static",
        calibration=calibration,
        out=tmp_path_factory.mktemp("static") / "out",
        measure_seconds=0,
    )
    return made.folder


@pytest.fixture(scope="module")
def session(bundle: Path) -> Iterator[Session]:
    """The same, loaded."""
    with Session(bundle) as loaded:
        yield loaded


def _ends() -> dict[str, tuple[float, float]]:
    drawn = [_sample(seed) for seed in range(3)]
    lowest = min(float(image.min()) for image, _ in drawn)
    highest = max(float(rows.max()) for _, rows in drawn)
    return {"image.weight": (lowest, _LARGEST), "rows.weight": (-_LARGEST, highest)}


def _rounded(values: Floats, ends: tuple[float, float]) -> torch.Tensor:
    """By the format's text: steps of a 255th of the range, cut to its ends."""
    low, high = (float(np.float32(end)) for end in ends)
    scale = (high - low) / 255
    zero = np.floor(-low / scale + 0.5)
    integers = np.clip(np.floor(values.astype("f8") / scale + zero + 0.5), 0, 255)
    return torch.from_numpy((integers - zero) * scale)


def _expected(bundle: Path, image: Floats, rows: Floats) -> list[Floats]:
    kept, wide = load_file(bundle / "weights.safetensors"), {}
    for name in ("image.weight", "rows.weight"):
        scales = kept[f"{name}.scales"].double()
        wide[name] = kept[name].double() * scales.reshape(-1, *[1] * (kept[name].dim() - 1))
    ends = _ends()
    return [
        nn.functional.conv2d(_rounded(image, ends["image.weight"]), wide["image.weight"]).numpy(),
        (_rounded(rows, ends["rows.weight"]) @ wide["rows.weight"].T).numpy(),
    ]


def test_the_bundle_keeps_the_ends_of_all_samples(bundle: Path) -> None:
    """The smallest and the largest that each weight met in any of the calls, or zero."""
    kept = load_file(bundle / "weights.safetensors")
    for name, ends in _ends().items():
        assert kept[f"{name}.operand"].dtype is torch.float32
        assert kept[f"{name}.operand"].tolist() == pytest.approx(ends, rel=1e-7)


def test_products_are_those_of_the_integers(bundle: Path, session: Session) -> None:
    """What is beyond the samples' range is cut to its ends; all else is 100 dB near."""
    image, rows = (tensor.numpy().copy() for tensor in _sample(77))
    image.flat[3], rows.flat[100] = 50.0, -50.0
    found = list(session.run({"image": image, "rows": rows}).values())
    for wanted, got in zip(_expected(bundle, image, rows), found, strict=True):
        error = np.linalg.norm((wanted - got).ravel())
        assert 20 * np.log10(np.linalg.norm(wanted.ravel()) / error) > 100


def test_a_result_does_not_depend_on_its_neighbours(session: Session) -> None:
    """With another number in a row, the products of the others keep every bit."""
    image, rows = (tensor.numpy().copy() for tensor in _sample(5))
    before = list(session.run({"image": image, "rows": rows}).values())
    image[0, :, 0, 0] = 3.5
    after = list(session.run({"image": image, "rows": rows}).values())
    assert np.array_equal(before[0][0, :, 3:], after[0][0, :, 3:])
    assert not np.array_equal(before[0][0], after[0][0])


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_not_cut(session: Session, odd: float) -> None:
    """Its row is NaN, as it is with `int8`; the others stay."""
    image, rows = (tensor.numpy().copy() for tensor in _sample(5))
    before = list(session.run({"image": image, "rows": rows}).values())
    rows[2, 3] = odd
    after = list(session.run({"image": image, "rows": rows}).values())
    assert np.isnan(after[1][2]).all()
    assert np.array_equal(np.delete(before[1], 2, 0), np.delete(after[1], 2, 0))


def test_samples_are_required_and_refused(tmp_path: Path) -> None:
    """The precision needs them, and no other takes them; nothing is made."""
    net, call = _Net().eval(), _sample(0)
    with pytest.raises(UsageError, match="has no samples for calibration"):
        convert(net, call, precision="int8-static", out=tmp_path / "out")
    with pytest.raises(UsageError, match="has samples for calibration"):
        convert(net, call, precision="int8", calibration=[call], out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


_PROGRAM = ProgramSpec(
    name="main",
    inputs=(InputSpec(name="x", shape=("batch", 3)), InputSpec(name="y", shape=("batch",))),
    dimensions={"batch": {"low": 1, "high": 4}},
)


def _file(folder: Path, **tensors: torch.Tensor) -> Path:
    save_file(tensors, folder / "samples.safetensors")
    return folder / "samples.safetensors"


def test_samples_become_calls_of_as_many_as_the_program_takes(tmp_path: Path) -> None:
    """Ten rows, of which a call takes four at most, in order."""
    x, y = torch.arange(30.0).reshape(10, 3), torch.arange(10.0)
    calls = list(samples(_PROGRAM, _file(tmp_path, x=x, y=y), alone=True))
    assert [len(call[0]) for call in calls] == [4, 4, 2]
    assert torch.equal(torch.cat([call[1] for call in calls]), y)


def test_a_call_of_a_fixed_size_is_whole(tmp_path: Path) -> None:
    """What is left over makes none; fewer than one call are refused."""
    program = ProgramSpec(name="main", inputs=(InputSpec(name="x", shape=(4, 3)),))
    calls = samples(program, _file(tmp_path, x=torch.ones(10, 3)), alone=True)
    assert [len(call[0]) for call in calls] == [4, 4]
    with pytest.raises(SourceError, match="has 3 samples, program main takes 4 a call"):
        list(samples(program, _file(tmp_path, x=torch.ones(3, 3)), alone=True))


@pytest.mark.parametrize(
    ("sample", "fact"),
    [
        (_sample(0)[0], r"a sample is Tensor, the program takes \(float32 of 4 axes, float32"),
        ((_sample(0)[0],), r"a sample is \(float32 of 4 axes\), the program takes"),
        ((*_sample(0), torch.ones(1)), r"float32 of 1 axes\), the program takes"),
        (tuple(t.double() for t in _sample(0)), r"a sample is \(float64 of 4 axes"),
        ((_sample(0)[0], torch.ones(6, 65)), "sample 0 fails: mat1 and mat2 shapes cannot be"),
        (tuple(t / 0 for t in _sample(0)), "makes numbers that are not finite"),
    ],
)
def test_calls_that_do_not_fit_are_refused(sample: object, fact: str, tmp_path: Path) -> None:
    """Of `convert()`: a tuple of all inputs, as the program takes them, is a sample."""
    net = _Net().eval().requires_grad_(requires_grad=False)
    out, given = tmp_path / "out", [sample]
    with pytest.raises(UsageError, match=fact):
        convert(net, _sample(9), precision="int8-static", calibration=given, out=out)
    assert list(tmp_path.iterdir()) == []


def test_several_programs_have_samples_by_their_names(tmp_path: Path) -> None:
    """`<program>/<input>`."""
    data = tmp_path / "samples.safetensors"
    save_file({"main/x": torch.ones(1, 3), "main/y": torch.ones(1)}, data)
    assert len(list(samples(_PROGRAM, data, alone=False))) == 1


@pytest.mark.parametrize(
    ("tensors", "fact"),
    [
        ({"x": torch.ones(2, 3)}, "lack 'y'"),
        ({"x": torch.ones(2, 3), "y": torch.ones(3)}, "as many samples of each input"),
        ({"x": torch.ones(0, 3), "y": torch.ones(0)}, "as many samples of each input"),
        ({"x": torch.ones(2, 4), "y": torch.ones(2)}, r"'x' has \[2, 4\] of float32"),
        ({"x": torch.ones(2, 3).double(), "y": torch.ones(2)}, "of float64, the program takes"),
        ({"x": torch.ones(()), "y": torch.ones(2)}, r"'x' has \[\]"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], fact: str
) -> None:
    """With the file, the input and what is wrong with it."""
    with pytest.raises(SourceError, match=fact):
        list(samples(_PROGRAM, _file(tmp_path, **tensors), alone=True))
