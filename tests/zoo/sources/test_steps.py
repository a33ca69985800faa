"""Arithmetic steps compute what torch computes of the same picture."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate

from zoo.sources.steps import stepped
from zoo.spec import FitStep, NormaliseStep, SoftmaxStep


def test_a_picture_is_cut_and_resized_as_by_interpolate() -> None:
    """The whole square of either orientation, smaller and larger, as `antialias=True` has it.

    The middle half of a picture of 64 pixels is its 32 in the middle where their surroundings,
    which filters at the edges see, are alike.
    """
    torch.manual_seed(0)
    for high, wide, size in ((50, 50, 16), (40, 40, 64), (64, 64, 64)):
        picture = torch.randint(0, 256, (2, high, wide, 3), dtype=torch.uint8)
        channels = picture.permute(0, 3, 1, 2).float()
        expected = interpolate(channels, (size, size), mode="bilinear", antialias=True)
        fit = FitStep(kind="fit", size=size)
        found = stepped({"picture": picture}, {"picture": (fit,)})["picture"]
        assert torch.allclose(found, expected, atol=1e-2)
    picture = torch.zeros(1, 64, 100, 3)
    picture[:, :, 50:] = 100.0
    half = FitStep(kind="fit", size=32, share=0.5)
    found = stepped({"picture": picture}, {"picture": (half,)})["picture"]
    assert torch.equal(found[0, :, :, :16], torch.zeros(3, 32, 16))
    assert torch.allclose(found[0, :, :, 16:], torch.full((3, 32, 16), 100.0))


def test_normalise_and_softmax() -> None:
    """By channel, or by one number for all; the others are handed on."""
    value = torch.tensor([1.0, 2.0, 4.0]).view(1, 3, 1, 1)
    by_channel = NormaliseStep(kind="normalise", mean=(1.0, 1.0, 2.0), deviation=(2.0,))
    softmax = SoftmaxStep(kind="softmax")
    given = {"x": value, "y": torch.tensor([0.0, 0.0])}
    found = stepped(given, {"x": (by_channel,), "y": (softmax,)})
    assert found["x"].flatten().tolist() == [0.0, 0.5, 1.0]
    assert found["y"].tolist() == [0.5, 0.5]
