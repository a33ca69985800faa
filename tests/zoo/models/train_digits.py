"""Trains `digits_cnn` on scikit-learn's digits: `python tests/zoo/models/train_digits.py FOLDER`.

Writes `digits_cnn.safetensors` (the state dict), `held_out.safetensors` (images and labels the
training never saw) and `calibration.safetensors` (images that it saw) in a few seconds, and prints
the accuracy and the sha256 for the entry. The data are the test part of the UCI "Optical
Recognition of Handwritten Digits" set that scikit-learn carries: 1797 images of 8x8 pixels with
values from 0 to 16.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from zoo.models.builders.digits_cnn import DigitsCnn, digits_cnn

_SEED = 0
_HELD_OUT = 360
_CALIBRATION = 100
_EPOCHS = 25
_BATCH = 64
_WHITE = 16.0  # the highest grey value in the data


class Digits(NamedTuple):
    """Images (n, 1, 8, 8) from 0 to 1, and their digits (n,) as int64."""

    image: Tensor
    labels: Tensor


def split_digits() -> tuple[Digits, Digits]:
    """The training part and the held-out part, always the same."""
    data = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(data.target))
    image = torch.from_numpy(data.images[order] / _WHITE).float().unsqueeze(1)
    labels = torch.from_numpy(data.target[order]).long()
    training = Digits(image[_HELD_OUT:].contiguous(), labels[_HELD_OUT:].contiguous())
    return training, Digits(image[:_HELD_OUT].contiguous(), labels[:_HELD_OUT].contiguous())


def train(digits: Digits, epochs: int = _EPOCHS) -> DigitsCnn:
    """Train from a fixed seed, on one thread so that sums are added in one order.

    The caller's random numbers and thread count are left as they were.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            return _train(digits, epochs)
    finally:
        torch.set_num_threads(threads)


def accuracy(model: nn.Module, digits: Digits) -> float:
    """The fraction of `digits` whose highest logit is the label."""
    with torch.no_grad():
        guesses = model(digits.image).argmax(dim=1)
    return float((guesses == digits.labels).double().mean())


def _train(digits: Digits, epochs: int) -> DigitsCnn:
    model = digits_cnn().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * -(-len(digits.labels) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1e-2, total_steps=steps)
    for _ in range(epochs):
        for chosen in torch.split(torch.randperm(len(digits.labels)), _BATCH):
            optimiser.zero_grad()
            logits = model(digits.image[chosen])
            nn.functional.cross_entropy(logits, digits.labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return model.eval()


def main() -> None:
    """Train and write the files into the folder named as argument, as `zoo/models/digits`."""
    folder = Path(sys.argv[1])
    training, held_out = split_digits()
    model = train(training)
    weights = folder / "digits_cnn.safetensors"
    save_file(model.state_dict(), weights)
    save_file(held_out._asdict(), folder / "held_out.safetensors")
    seen = training.image[:_CALIBRATION].contiguous()
    save_file({"image": seen}, folder / "calibration.safetensors")
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    lines = (f"held-out accuracy: {accuracy(model, held_out):.4f}", f"sha256: {digest}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
