"""Parakeet as a recogniser's programs, from samples to the inputs of a decoding loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.models.builders.recognisers import HOP, MelPowers
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import ParakeetForCTC, ParakeetForRNNT, ParakeetForTDT, ParakeetTDTConfig
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderCTCHead

_WINDOW = 400
_FFT = 512
_PREEMPHASIS = 0.97
_FLOOR = 2.0**-24  # added to a power before its logarithm
_EPSILON = 1e-5  # added to a deviation before division
_BLANK = 10  # tokens 0 to 9 are the digits
_DURATIONS = (0, 1, 2, 3, 4)  # of a token, in frames of 80 ms
_TOKENS = 11
_WIDTH = 128
_DECODER_WIDTH = 96


class LogMel(MelPowers):
    """Parakeet's features: log mel powers of `bins` bins, each normalised over the recording.

    The values equal those of `transformers.ParakeetFeatureExtractor` (and NeMo's preprocessor with
    `per_feature` normalisation): preemphasis 0.97, Hann windows of 25 ms every 10 ms, 512 bins.
    """

    def __init__(self, bins: int = 80) -> None:
        super().__init__(bins, _FFT, torch.hann_window(_WINDOW, periodic=False))

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and a mask of real frames.

        Samples are (batch, n) float32 from -1 to 1 at 16 kHz, n a multiple of 160; `lengths`,
        (batch,) int64, is the number of real samples of each row: from 320 to n. The features are
        (batch, n / 160, bins) float32, zero past the end; the mask is (batch, n / 160) bool.
        """
        real = torch.arange(samples.shape[1], device=samples.device) < lengths[:, None]
        sharp = samples[:, 1:] - _PREEMPHASIS * samples[:, :-1]
        signal = torch.cat([samples[:, :1], sharp], dim=1) * real
        mels = torch.log(self.powers(signal, win_length=_WINDOW, pad_mode="constant") + _FLOOR)
        frames = (real.sum(1) // HOP)[:, None, None]
        mask = torch.arange(mels.shape[1], device=mels.device)[None, :, None] < frames
        mean = (mels * mask).sum(1, keepdim=True) / frames
        centred = (mels - mean) * mask
        deviation = torch.sqrt(centred.square().sum(1, keepdim=True) / (frames - 1))
        return centred / (deviation + _EPSILON), mask.squeeze(-1)


class SpeechEncoder(nn.Module):
    """A map from samples to encoded frames, and to the scores of a CTC head if there is one.

    The encoder has no head. `projector` maps its width to the joint network's; None without a
    transducer. `ctc_head` maps (batch, frames, width) to the tokens' scores.
    """

    def __init__(
        self, encoder: Any, projector: nn.Module | None, ctc_head: nn.Module | None
    ) -> None:
        super().__init__()
        self.log_mel = LogMel(encoder.config.num_mel_bins)
        self.encoder = encoder
        self.projector = projector
        self.ctc_head = ctc_head

    def forward(self, samples: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Encode a recording of n samples in steps of 1280 samples (80 ms).

        Samples are (batch, n) float32 from -1 to 1 at 16 kHz, n a multiple of 1280; `lengths`,
        (batch,) int64, is the number of real samples of each row. Return `encoded` (batch,
        n / 1280, width) with a projector, `logits` (batch, n / 1280, tokens) with a CTC head; rows
        past a recording's end are meaningless.
        """
        features, mask = self.log_mel(samples, lengths)
        hidden = self.encoder(features, attention_mask=mask).last_hidden_state
        results = {}
        if self.projector is not None:
            results["encoded"] = self.projector(hidden)
        if self.ctc_head is not None:
            results["logits"] = self.ctc_head(hidden)
        return results


class TransducerStep(nn.Module):
    """One step of a transducer: the prediction network on a token, the joint network on frames.

    The joint network is applied to a window of frames at once. While it emits blanks, the output of
    the prediction network does not change, so a decoding loop makes one call per token, not per
    frame. The first `tokens` scores are the tokens', including blank; the others are durations'.
    """

    def __init__(self, decoder: Any, joint: Any, tokens: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.joint = joint
        self.tokens = tokens

    def forward(
        self, token: Tensor, hidden: Tensor, cell: Tensor, frames: Tensor
    ) -> dict[str, Tensor]:
        """Feed `token`, then apply the joint network to `frames`.

        The token, (1, 1) int64, is the last one emitted; at first it is blank. `hidden` and `cell`,
        (layers, 1, width) float32, are the LSTM's state before it; at first they are zero. `frames`
        (1, window, width) float32 are consecutive rows of `encoded`. Return `logits` (1, window,
        tokens), `durations` (1, window, number of durations; absent for an RNN-T), and the state
        after the token.
        """
        output, state = self.decoder.lstm(self.decoder.embedding(token), (hidden, cell))
        scores = self.joint(self.decoder.decoder_projector(output), frames)
        results = {"logits": scores[..., : self.tokens]}
        if scores.shape[-1] > self.tokens:
            results["durations"] = scores[..., self.tokens :]
        return {**results, "hidden": state[0], "cell": state[1]}


def parts(model: Any) -> nn.ModuleDict:
    """Return the programs of a Parakeet with a CTC, TDT or RNN-T head; none for other models.

    They are `listen`, from samples to encoded frames or CTC scores, and `emit`, one step of a
    transducer.
    """
    if isinstance(model, ParakeetForCTC):
        return nn.ModuleDict({"listen": SpeechEncoder(model.encoder, None, model.ctc_head)})
    if not isinstance(model, ParakeetForTDT | ParakeetForRNNT):
        return nn.ModuleDict()
    step = TransducerStep(model.decoder, model.joint, model.config.vocab_size)
    listen = SpeechEncoder(model.encoder, model.encoder_projector, None)
    return nn.ModuleDict({"listen": listen, "emit": step})


def spoken_digits() -> nn.ModuleDict:
    """Return an untrained FastConformer with CTC and TDT heads, like NVIDIA's hybrids.

    `listen` returns encoded frames and CTC scores, `emit` is a step of the transducer.
    """
    model = ParakeetForTDT(_config())
    head = ParakeetEncoderCTCHead(_WIDTH, _TOKENS, kernel_size=1)
    listen = SpeechEncoder(model.encoder, model.encoder_projector, head)
    return nn.ModuleDict(
        {"listen": listen, "emit": TransducerStep(model.decoder, model.joint, _TOKENS)}
    )


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
        durations=list(_DURATIONS), blank_token_id=_BLANK, pad_token_id=_BLANK,
        encoder_config=encoder,
    )  # fmt: skip
