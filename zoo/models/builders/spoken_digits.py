"""A recogniser of spoken digits in the shape of Parakeet, small enough to be trained on a CPU."""

from __future__ import annotations

from torch import nn

from zoo.models.builders.parakeet import Emitter, Listener
from zoo.sources.operators import torchvision_operators

with torchvision_operators():
    from transformers import ParakeetForTDT, ParakeetTDTConfig
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderCTCHead

__all__ = ["BLANK", "DURATIONS", "SpokenDigits", "spoken_digits"]

BLANK = 10  # tokens 0 to 9 are the digits
DURATIONS = (0, 1, 2, 3, 4)  # of a token, in frames of 80 ms
_TOKENS = 11
_WIDTH = 128
_DECODER_WIDTH = 96


class SpokenDigits(nn.Module):
    """FastConformer with a CTC and a TDT head over one encoder, as NVIDIA's hybrid models have.

    Attributes:
        listen: samples to encoded frames and CTC scores.
        emit: a step of the transducer.
    """

    def __init__(self) -> None:
        super().__init__()
        model = ParakeetForTDT(_config())
        head = ParakeetEncoderCTCHead(_WIDTH, _TOKENS, kernel_size=1)
        self.listen = Listener(model.encoder, model.encoder_projector, head)
        self.emit = Emitter(model.decoder, model.joint, _TOKENS)


def spoken_digits() -> SpokenDigits:
    """An untrained one."""
    return SpokenDigits()


def _config() -> ParakeetTDTConfig:
    encoder = {
        "hidden_size": _WIDTH,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 384,
        "conv_kernel_size": 9,
        "subsampling_factor": 8,
        "subsampling_conv_channels": 32,
        "num_mel_bins": 80,
        "dropout": 0.05,
        "layerdrop": 0.0,
        "activation_dropout": 0.05,
        "attention_dropout": 0.05,
    }
    return ParakeetTDTConfig(
        vocab_size=_TOKENS, decoder_hidden_size=_DECODER_WIDTH, num_decoder_layers=1,
        durations=list(DURATIONS), blank_token_id=BLANK, pad_token_id=BLANK, encoder_config=encoder,
    )  # fmt: skip
