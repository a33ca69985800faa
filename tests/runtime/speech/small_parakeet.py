"""Parakeets of the transformers library small enough for a test, with something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from transformers import ParakeetForRNNT

with torchvision_operators():
    pass

ENCODER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "subsampling_conv_channels": 16,
    "num_mel_bins": 80,
    "initializer_range": 0.2,
}
TRANSDUCER: dict[str, Any] = {
    "vocab_size": 12,
    "decoder_hidden_size": 24,
    "num_decoder_layers": 2,
    "blank_token_id": 11,
    "pad_token_id": 11,
    "encoder_config": ENCODER,
}


def lively(model: torch.nn.Module) -> None:
    """Batch norm away from its initial state, in which the encoder always says the same."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.uniform_(0.1, 0.5)


def balance(model: ParakeetForRNNT, encoded: torch.Tensor) -> None:
    """Blank, token 11, is best at half of the frames, whatever was said before.

    Args:
        model: whose joint network to change.
        encoded: (1, frames, width), what it may hear.
    """
    with torch.no_grad():
        said = model.decoder(torch.arange(12)[:, None])
        scores = model.joint(said, encoded)[..., :12]
        lead = scores[..., :11].amax(-1) - scores[..., 11]
        model.joint.head.bias[11] += lead.median()
        # The library's search takes the best of all scores, durations included, as the token.
        model.joint.head.bias[12:] -= 1000.0
