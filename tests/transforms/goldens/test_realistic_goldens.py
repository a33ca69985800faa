"""Golden inputs like pictures and speech: their statistics, their kinds, their sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from menagerie.validation.findings import CaseKind
from transforms.export.prepare import Program, prepare_module
from transforms.goldens.cases import make_goldens, planned_cases
from transforms.goldens.realistic import Content, Values, content_of, draw
from zoo.spec import ProgramSpec

_STANDARD = Values(0.0, 1.0)


def _program(**fields: Any) -> ProgramSpec:
    return ProgramSpec.model_validate(
        {"inputs": ({"name": "x", "shape": (1, 3, 32, 32)},), **fields}
    )


def _kinds(spec: ProgramSpec) -> list[CaseKind]:
    return [case.kind for case in planned_cases(spec)]


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "expected"),
    [
        ("x", Dtype.FLOAT32, (1, 3, 224, 224), Content.PICTURE),
        ("pixel_values", Dtype.FLOAT16, ("batch", 1, "height", 8), Content.PICTURE),
        ("x", Dtype.FLOAT32, (1, 64, 56, 56), None),
        ("x", Dtype.UINT8, (1, 3, 224, 224), None),
        ("x", Dtype.FLOAT32, (1, 3, 4, 4), None),
        ("samples", Dtype.FLOAT32, (1, "samples"), Content.SAMPLES),
        ("waveform", Dtype.FLOAT32, (16_000,), Content.SAMPLES),
        ("hidden", Dtype.FLOAT32, (1, 16_000), None),
        ("input_features", Dtype.FLOAT32, (1, "frames", 80), Content.FRAMES),
        ("input_features", Dtype.FLOAT32, (1, 80, 3_000), Content.BINS),
    ],
)
def test_names_and_shapes_show_pictures_and_speech(
    name: str, dtype: Dtype, shape: tuple[int | str, ...], expected: Content | None
) -> None:
    """What looks like neither keeps its noise."""
    assert content_of(TensorSpec(name, dtype, shape)) is expected


def test_the_amplitudes_of_a_picture_fall_with_frequency() -> None:
    """Field (1987): as 1/f, a line of slope -1 over logarithms; noise's is flat."""
    image = draw(Content.PICTURE, (4, 1, 128, 128), _STANDARD, seed="a")[:, 0].double()
    spectrum = torch.fft.fft2(image).abs().mean(0)
    axis = torch.fft.fftfreq(128, dtype=torch.float64) * 128
    radius = torch.hypot(axis[:, None], axis[None]).round().long()
    rings = torch.arange(2, 48)
    amplitude = torch.stack([spectrum[radius == ring].mean() for ring in rings]).log()
    frequency = rings.double().log()
    centred = frequency - frequency.mean()
    slope = float((centred * amplitude).sum() / centred.square().sum())
    assert -1.4 < slope < -0.7


def test_a_picture_has_regions_and_edges() -> None:
    """Most neighbours are alike and few differ by far: kurtosis above 3, which is a Gaussian's."""
    image = draw(Content.PICTURE, (4, 3, 96, 96), _STANDARD, seed="a").double()
    steps = image.diff(dim=-1)
    kurtosis = steps.pow(4).mean() / steps.square().mean().square()
    assert float(steps.square().mean() / image.var()) < 0.5  # of noise: 2
    assert float(kurtosis) > 6.0


def test_a_picture_is_normalised_as_the_entry_samples() -> None:
    """Deviation and mean near those given, and never beyond the ends."""
    image = draw(Content.PICTURE, (2, 3, 64, 64), Values(0.5, 0.3, 0.0, 1.0), seed="a")
    assert image.shape == (2, 3, 64, 64)
    assert image.dtype is torch.float32
    assert 0.0 <= float(image.min()) < 0.15
    assert 0.85 < float(image.max()) <= 1.0
    assert math.isclose(float(image.mean()), 0.5, abs_tol=0.1)


def test_speech_has_voice_and_pauses() -> None:
    """Half a second holds loud and quiet stretches, and in loud ones a pitch of 70 to 220 Hz."""
    sound = draw(Content.SAMPLES, (1, 16_000), Values(0.0, 0.1), seed="a")[0].double()
    assert math.isclose(float(sound.square().mean().sqrt()), 0.1, rel_tol=0.05)
    loud = sound[:15_840].reshape(-1, 160).square().mean(1).sqrt()
    assert float(loud.max() / loud.min()) > 30.0
    start = int(loud.argmax()) * 160
    voiced = sound[start - 400 : start + 400]
    power = torch.fft.rfft(voiced, n=4096).abs().square()
    same = torch.fft.irfft(power)  # autocorrelation
    lags = same[16_000 // 220 : 16_000 // 70]
    assert float(lags.max() / same[0]) > 0.5


def test_features_are_what_the_front_ends_make() -> None:
    """Parakeet's bins have mean 0 and deviation 1; Whisper's span at most two, 8 decades."""
    frames = draw(Content.FRAMES, (1, 64, 80), _STANDARD, seed="a")[0]
    assert frames.shape == (64, 80)
    assert float(frames.mean(0).abs().max()) < 1e-3
    assert torch.allclose(frames.std(0), torch.ones(80), atol=1e-2)
    bins = draw(Content.BINS, (1, 80, 100), _STANDARD, seed="a")[0]
    assert bins.shape == (80, 100)
    assert 0.5 < float(bins.max() - bins.min()) <= 2.0


@pytest.mark.parametrize("content", [Content.PICTURE, Content.SAMPLES])
def test_a_seed_gives_the_same_bytes_whatever_the_threads(content: Content) -> None:
    """Goldens are compared byte by byte with those that another machine makes."""
    shape = (1, 3, 224, 224) if content is Content.PICTURE else (1, 32_000)
    threads = torch.get_num_threads()
    once = draw(content, shape, _STANDARD, seed="a")
    torch.rand(3)
    try:
        torch.set_num_threads(1)
        again = draw(content, shape, _STANDARD, seed="a")
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(once, again)
    assert not torch.equal(once, draw(content, shape, _STANDARD, seed="b"))


def test_a_picture_is_the_last_case_and_costs_one_at_most() -> None:
    """Where there were repetitions of noise, it takes the place of one."""
    noise, picture = CaseKind.NOISE, CaseKind.PICTURE
    assert _kinds(_program()) == [noise, noise, picture]
    assert _kinds(_program(golden_cases=1)) == [noise, picture]
    batches = _program(
        inputs=({"name": "x", "shape": ("n", 3, 32, 32)},), dimensions={"n": {"low": 2, "high": 9}}
    )
    assert _kinds(batches) == [noise, noise, noise, picture]
    assert planned_cases(batches)[-1].dimensions == {"n": 2}
    assert _kinds(_program(inputs=({"name": "x", "shape": (1, 8)},))) == [noise] * 3


def test_speech_lasts_for_half_a_second_and_no_mask_hides_it() -> None:
    """The lowest size that has a syllable and a pause; steps are kept."""
    spec = _program(
        inputs=(
            {"name": "input_features", "shape": (1, "frames", 80)},
            {
                "name": "mask",
                "shape": (1, "frames"),
                "dtype": "bool",
                "sample": {"kind": "prefix_mask"},
            },
        ),
        dimensions={"frames": {"low": 16, "high": 400, "multiple_of": 16}},
    )
    assert planned_cases(spec)[-1].dimensions == {"frames": 64}

    class Both(torch.nn.Module):
        def forward(self, input_features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return input_features * mask[..., None]

    last = make_goldens(Both(), spec)[-1]
    assert last.kind is CaseKind.SPEECH
    assert bool(last.inputs["mask"].all())
    assert torch.equal(last.outputs["output"], last.inputs["input_features"])


def test_own_modules_meet_pictures_within_the_values_given() -> None:
    """Behind the inputs given: their mean and deviation, nothing beyond their ends."""
    given = torch.rand(2, 3, 16, 16) * 3.0 + 1.0
    first, last = prepare_module("main", Program(torch.nn.Conv2d(3, 2, 3), (given,))).goldens
    assert (first.kind, last.kind) == (CaseKind.GIVEN, CaseKind.PICTURE)
    [picture] = last.inputs.values()
    assert picture.shape == given.shape
    assert float(given.min()) <= float(picture.min()) < float(picture.max()) <= float(given.max())
    assert math.isclose(float(picture.mean()), float(given.mean()), abs_tol=0.5)


def test_examples_of_one_value_say_nothing_of_others() -> None:
    """Zeros alone: what else the program takes is unknown."""
    program = Program(torch.nn.Conv2d(3, 2, 3), (torch.zeros(1, 3, 16, 16),))
    assert [case.kind for case in prepare_module("main", program).goldens] == [CaseKind.GIVEN]
