"""wav2vec 2.0 and HuBERT, from samples to what a CTC decoder asks for: one program."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import HubertForCTC, Wav2Vec2ForCTC

_EPSILON = 1e-7  # added to a variance before its root


def level(samples: Tensor) -> Tensor:
    """Samples of mean 0 and deviation 1, as `transformers.Wav2Vec2FeatureExtractor` makes them.

    Args:
        samples: (batch, n) float32.
    """
    centred = samples - samples.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + _EPSILON)


class CtcScores(nn.Module):
    """Samples to the scores of a CTC head.

    Args:
        model: with its head.
        normalise: whether it was trained on samples of mean 0 and deviation 1.
    """

    def __init__(self, model: nn.Module, normalise: bool) -> None:
        super().__init__()
        self.model = model
        self.normalise = normalise

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """What a recording of n samples holds, in frames of 400 samples, one every 320 (20 ms).

        Nothing is padded, and no frame masked: group normalisation, attention and the convolution
        that stands for positions hear all samples.

        Args:
            samples: (1, n) float32 from -1 to 1 at 16 kHz, n at least 720.

        Returns:
            `logits` (1, (n - 80) // 320, tokens) float32.
        """
        return {"logits": self.model(level(samples) if self.normalise else samples).logits}


class Wav2Vec2(nn.Module):
    """A wav2vec 2.0 or HuBERT of the transformers library as the program of a recogniser.

    Attributes:
        listen: samples to CTC scores.

    Args:
        model: what `takes` is true of.
        normalise: as its preprocessor_config.json says by `do_normalize`.
    """

    def __init__(self, model: Any, normalise: bool = True) -> None:
        super().__init__()
        self.listen = CtcScores(model, normalise)

    @staticmethod
    def takes(model: nn.Module) -> bool:
        """Whether it is one of both with a CTC head."""
        return isinstance(model, Wav2Vec2ForCTC | HubertForCTC)
