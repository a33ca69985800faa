"""The digits classifier: its data, its training, and the weights that are committed."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from zoo.manifest import OUR_MODELS
from zoo.models.builders.digits_cnn import digits_cnn

sys.path.insert(0, str(Path(__file__).parent))

from train_digits import Digits, accuracy, split_digits, train

_FOLDER = OUR_MODELS / "digits"


def test_held_out_images_are_the_committed_ones() -> None:
    """The accuracy gate judges by images that the training script really held out."""
    training, held_out = split_digits()
    committed = load_file(_FOLDER / "held_out.safetensors")
    assert torch.equal(committed["image"], held_out.image)
    assert torch.equal(committed["labels"], held_out.labels)
    assert (len(training.labels), len(held_out.labels)) == (1437, 360)
    assert float(held_out.image.min()) == 0.0
    assert float(held_out.image.max()) == 1.0
    assert sorted(set(held_out.labels.tolist())) == list(range(10))


def test_calibration_is_on_images_that_were_learnt_from() -> None:
    """A hundred of them: what judges the artifact must not have shaped it."""
    training, _ = split_digits()
    assert torch.equal(
        load_file(_FOLDER / "calibration.safetensors")["image"], training.image[:100]
    )


def test_no_image_is_in_both_parts() -> None:
    """What was held out was not learnt from: the parts are one split of all 1797 images."""
    together = torch.cat([part.image.flatten(1) for part in split_digits()])
    assert len(torch.unique(together, dim=0)) == len(together) == 1797


def test_committed_weights_are_good() -> None:
    """358 of the 360 held-out digits are recognised."""
    model = digits_cnn().eval()
    model.load_state_dict(load_file(_FOLDER / "digits_cnn.safetensors"))
    committed = load_file(_FOLDER / "held_out.safetensors")
    assert accuracy(model, Digits(committed["image"], committed["labels"])) == 358 / 360


def test_training_learns_and_repeats() -> None:
    """A few epochs reach 90 % on unseen digits; the seed makes the weights, not the caller's."""
    training, held_out = split_digits()
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(train(training, epochs=3))
    assert accuracy(models[0], held_out) > 0.9
    first, second = (model.state_dict() for model in models)
    assert all(torch.equal(first[key], second[key]) for key in first)
