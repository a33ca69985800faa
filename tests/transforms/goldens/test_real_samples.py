"""Golden cases of entries that have samples: their own pictures and recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from menagerie.validation.findings import CaseKind
from transforms.goldens.cases import planned_cases
from transforms.goldens.entry import real_sample, samples
from zoo.manifest import load_manifest
from zoo.precision import Precision
from zoo.sources.context import Context
from zoo.sources.use import calibration_data

if TYPE_CHECKING:
    import torch


def _of(model: str) -> tuple[dict[str, torch.Tensor] | None, list[CaseKind]]:
    manifest = load_manifest()
    spec, folder = manifest.spec(model), manifest.origins[model].file.parent
    found = real_sample(spec, spec.programs[0], Context(model, folder))
    return found, [case.kind for case in planned_cases(spec.programs[0], found)]


def test_digits_are_proven_on_a_digit() -> None:
    """The first of the gate's images, as many as the smallest batch."""
    found, kinds = _of("digits_cnn")
    manifest = load_manifest()
    data = load_file(manifest.origins["digits_cnn"].file.parent / "digits/held_out.safetensors")
    assert found is not None
    assert np.array_equal(found["image"].numpy(), data["image"][:1])
    assert kinds == [CaseKind.NOISE] * 3 + [CaseKind.SAMPLE]


def test_spoken_digits_are_proven_on_a_recording() -> None:
    """The shortest of the held-out ones, padded with silence to whole frames of 80 ms."""
    found, kinds = _of("spoken_digits")
    assert found is not None
    samples, length = found["samples"], int(found["lengths"])
    assert samples.shape[1] % 1280 == 0
    assert 0 <= samples.shape[1] - length < 1280
    assert not samples[0, length:].any()
    assert 0.01 < float(samples.abs().max()) <= 1.0
    assert kinds[-1] is CaseKind.SAMPLE


def test_a_calibrations_samples_serve_where_there_is_no_gate() -> None:
    """Each input's first row, for a program that takes one at least."""
    manifest = load_manifest()
    static = manifest.spec("digits_cnn").variants()[Precision.INT8_STATIC]
    spec = static.model_copy(update={"accuracy": None})
    origin = manifest.origins["digits_cnn"].file.parent
    found = real_sample(spec, spec.programs[0], Context("digits_cnn", origin))
    expected = load_file(origin / "digits/calibration.safetensors")["image"][:1]
    assert found is not None
    assert np.array_equal(found["image"].numpy(), expected)


def test_a_gates_data_calibrates_where_the_entry_says_so() -> None:
    """All of its images, by the program's name of them."""
    manifest = load_manifest()
    static = manifest.spec("digits_cnn").variants()[Precision.INT8_STATIC]
    spec = static.model_copy(update={"calibration": "accuracy"})
    origin = manifest.origins["digits_cnn"].file.parent
    data = calibration_data(spec, Context("digits_cnn", origin))
    given = np.concatenate(
        [image.numpy() for (image,) in samples(spec.programs[0], data, alone=True)]
    )
    assert np.array_equal(given, load_file(origin / "digits/held_out.safetensors")["image"])


@pytest.mark.parametrize("model", ["resnet18", "parakeet_ctc_small"])
def test_other_entries_have_none(model: str) -> None:
    """So that their last case is made by chance."""
    found, kinds = _of(model)
    assert found is None
    assert kinds[-1] in {CaseKind.PICTURE, CaseKind.SPEECH}
