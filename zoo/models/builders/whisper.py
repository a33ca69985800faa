"""Whisper, from samples to what a decoding loop asks for: the programs of a recogniser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.models.builders.attention_decoder import CrossKeys, TokenDecoder
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import WhisperForConditionalGeneration
    from transformers.audio_utils import mel_filter_bank

if TYPE_CHECKING:
    from transformers.models.whisper.modeling_whisper import (
        WhisperAttention,
        WhisperDecoder,
        WhisperEncoder,
    )

__all__ = ["Emitter", "Listener", "LogMel", "Whisper"]

_RATE = 16_000  # samples a second
_FFT = 400
_HOP = 160
_FLOOR = 1e-10  # the least power
_RANGE = 8.0  # decades below a window's loudest bin that are told apart


class LogMel(nn.Module):
    """Whisper's features: log mel powers of a window, scaled by its loudest bin.

    The numbers are those of `transformers.WhisperFeatureExtractor`: periodic Hann windows of 25 ms
    every 10 ms, mirrored at both ends, of a recording that is padded with zeros to the window.

    Args:
        bins: how many mel bins.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, bins: int = 80) -> None:
        super().__init__()
        filters = mel_filter_bank(
            _FFT // 2 + 1, bins, 0.0, _RATE / 2, _RATE, norm="slaney", mel_scale="slaney"
        )
        self.register_buffer("filters", torch.from_numpy(filters).float(), persistent=False)
        self.register_buffer("window", torch.hann_window(_FFT), persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Features of a window.

        Args:
            samples: (1, n) float32 from -1 to 1 at 16 kHz, n a multiple of 160.

        Returns:
            (1, bins, n / 160) float32.
        """
        spectrum = torch.stft(
            samples, _FFT, hop_length=_HOP, window=self.window, return_complex=True
        )
        power = torch.view_as_real(spectrum).square().sum(-1)[:, :, :-1]
        mels = (power.transpose(1, 2) @ self.filters).clamp(min=_FLOOR).log10()
        return (torch.maximum(mels, mels.amax() - _RANGE).transpose(1, 2) + 4.0) / 4.0


class Listener(CrossKeys):
    """A window of samples to the keys and values that every decoder layer attends to.

    Args:
        encoder: of the model.
        decoder: whose layers' projections of the encoder's result are computed here, once.
    """

    def __init__(self, encoder: WhisperEncoder, decoder: WhisperDecoder) -> None:
        super().__init__(
            (layer.encoder_attn for layer in decoder.layers), decoder.config.decoder_attention_heads
        )
        self.log_mel = LogMel(encoder.config.num_mel_bins)
        self.encoder: WhisperEncoder
        self.encoder = encoder

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """What a window holds.

        Args:
            samples: (1, n) float32 from -1 to 1 at 16 kHz: as many as the encoder has positions,
                320 each; zeros behind the recording's end.

        Returns:
            `keys` and `values`, (layers, heads, n / 320, width of a head) float32.
        """
        encoded = self.encoder(self.log_mel(samples)).last_hidden_state
        return self.of(encoded)


class Emitter(TokenDecoder):
    """One step of the decoder: a token in, the scores of the next one out.

    It keeps as many tokens as the model has positions.

    Args:
        decoder: of the model.
        head: from its width to the tokens' scores.
    """

    def __init__(self, decoder: WhisperDecoder, head: nn.Module) -> None:
        config = decoder.config
        heads = config.decoder_attention_heads
        super().__init__(
            config.decoder_layers, heads, config.max_target_positions, config.d_model // heads
        )
        self.decoder: WhisperDecoder
        self.decoder = decoder
        self.head = head

    def forward(
        self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> dict[str, Tensor]:
        """Feed a token.

        Args:
            token: (1, 1) int64.
            position: (1,) int64, how many tokens were fed before it; less than the capacity.
            keys: (layers, heads, positions, width of a head) float32, of the window.
            values: as `keys`.

        Returns:
            `logits` (1, tokens) float32.
        """
        seen = self.seen(position)
        rows = self.decoder.embed_tokens(token) + self.decoder.embed_positions.weight[position]
        for number, layer in enumerate(self.decoder.layers):
            normal = layer.self_attn_layer_norm(rows)
            attention = layer.self_attn
            key = self.by_head(attention.k_proj(normal))
            value = self.by_head(attention.v_proj(normal))
            own = self.remembered(number, key, value, position)
            rows = rows + self._attend(attention, normal, *own, seen)
            normal = layer.encoder_attn_layer_norm(rows)
            heard = keys[number][None], values[number][None]
            rows = rows + self._attend(layer.encoder_attn, normal, *heard, None)
            normal = layer.final_layer_norm(rows)
            rows = rows + layer.fc2(layer.activation_fn(layer.fc1(normal)))
        return {"logits": self.head(self.decoder.layer_norm(rows))[:, 0]}

    def _attend(
        self,
        attention: WhisperAttention,
        rows: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        query = self.by_head(attention.q_proj(rows) * attention.scaling)
        mixed = nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=1.0
        )
        projected: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return projected


class Whisper(nn.Module):
    """A Whisper of the transformers library as the programs of a recogniser.

    Attributes:
        listen: a window of samples to keys and values.
        emit: a step of the decoder.

    Args:
        model: what `takes` is true of.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.listen = Listener(model.model.encoder, model.model.decoder)
        self.emit = Emitter(model.model.decoder, model.proj_out)

    @staticmethod
    def takes(model: nn.Module) -> bool:
        """Whether it is a Whisper that writes text."""
        return isinstance(model, WhisperForConditionalGeneration)
