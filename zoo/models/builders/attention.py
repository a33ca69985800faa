"""Speech recognisers with an attention decoder, Whisper and Moonshine: their programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.models.builders.wav2vec2 import level
from zoo.models.torchvision_operators import torchvision_operators

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers.models.moonshine.modeling_moonshine import (
        MoonshineAttention,
        MoonshineDecoder,
        MoonshineEncoder,
    )
    from transformers.models.whisper.modeling_whisper import (
        WhisperAttention,
        WhisperDecoder,
        WhisperEncoder,
    )


class CrossKeys(nn.Module):
    """Gives every layer of a decoder the keys and values of an encoder's result, once a window.

    Args:
        attentions: of each layer, to the encoder's result: with `k_proj` and `v_proj`.
        heads: of each of them.
    """

    def __init__(self, attentions: Iterable[Any], heads: int) -> None:
        super().__init__()
        each = list(attentions)
        self.heads = heads
        self.keys = nn.ModuleList([attention.k_proj for attention in each])
        self.values = nn.ModuleList([attention.v_proj for attention in each])

    def of(self, encoded: Tensor) -> dict[str, Tensor]:
        """`keys` and `values`, (layers, heads, positions, head's width), of (1, positions, n)."""
        return {
            "keys": torch.stack([self._by_head(each(encoded)) for each in self.keys]),
            "values": torch.stack([self._by_head(each(encoded)) for each in self.values]),
        }

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows[0].view(rows.shape[1], self.heads, -1).transpose(0, 1)


class TokenDecoder(nn.Module):
    """One step of a decoder; keys and values of the tokens before it are the program's state.

    The state is of static capacity. A token attends to those at its own position and before it, so
    that decoding may begin anew at position 0 whatever was decoded before.

    Args:
        layers: of the decoder.
        heads: of each layer's attention.
        capacity: the most tokens.
        width: of a head.
    """

    def __init__(self, layers: int, heads: int, capacity: int, width: int) -> None:
        super().__init__()
        self.heads, self.capacity = heads, capacity
        shape = (1, heads, capacity, width)
        for layer in range(layers):
            self.register_buffer(f"keys_{layer}", torch.zeros(shape), persistent=False)
            self.register_buffer(f"values_{layer}", torch.zeros(shape), persistent=False)

    def seen(self, position: Tensor) -> Tensor:
        """Which places a token at `position` (1,) attends to: (1, 1, 1, capacity) bool."""
        return (torch.arange(self.capacity, device=position.device) <= position)[None, None, None]

    def remembered(
        self, layer: int, key: Tensor, value: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A layer's keys and values with those of this token, by head, written at its position."""
        keys, values = getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}")
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        return keys, values

    def by_head(self, rows: Tensor) -> Tensor:
        """(1, heads, 1, width) of a token's (1, 1, n)."""
        return rows.view(1, 1, self.heads, -1).transpose(1, 2)


with torchvision_operators():
    from transformers import WhisperForConditionalGeneration
    from transformers.audio_utils import mel_filter_bank

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


class WhisperKeys(CrossKeys):
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


class WhisperStep(TokenDecoder):
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
        self.listen = WhisperKeys(model.model.encoder, model.model.decoder)
        self.emit = WhisperStep(model.model.decoder, model.proj_out)

    @staticmethod
    def takes(model: nn.Module) -> bool:
        """Whether it is a Whisper that writes text."""
        return isinstance(model, WhisperForConditionalGeneration)


with torchvision_operators():
    from transformers import MoonshineForConditionalGeneration
    from transformers.models.moonshine.modeling_moonshine import apply_rotary_pos_emb


class MoonshineKeys(CrossKeys):
    """Samples to the keys and values that every decoder layer attends to.

    Args:
        encoder: of the model; its convolutions take samples as they are.
        decoder: whose layers' projections of the encoder's result are computed here, once.
        normalise: whether it was trained on samples of mean 0 and deviation 1.
    """

    def __init__(
        self, encoder: MoonshineEncoder, decoder: MoonshineDecoder, normalise: bool
    ) -> None:
        super().__init__(
            (layer.encoder_attn for layer in decoder.layers),
            decoder.config.decoder_num_attention_heads,
        )
        self.encoder: MoonshineEncoder
        self.encoder = encoder
        self.normalise = normalise

    def forward(self, samples: Tensor) -> dict[str, Tensor]:
        """What a window holds, in frames of some 384 samples (24 ms).

        Args:
            samples: (1, n) float32 from -1 to 1 at 16 kHz, n at least 1279.

        Returns:
            `keys` and `values`, (layers, heads, frames, width of a head) float32.
        """
        encoded = self.encoder(level(samples) if self.normalise else samples).last_hidden_state
        return self.of(encoded)


class MoonshineStep(TokenDecoder):
    """One step of the decoder: a token in, the scores of the next one out.

    It keeps as many tokens as the model has positions.

    Args:
        decoder: of the model.
        head: from its width to the tokens' scores.
    """

    def __init__(self, decoder: MoonshineDecoder, head: nn.Module) -> None:
        config = decoder.config
        super().__init__(
            config.decoder_num_hidden_layers,
            config.decoder_num_attention_heads,
            config.max_position_embeddings,
            decoder.layers[0].self_attn.head_dim,
        )
        self.decoder: MoonshineDecoder
        self.decoder = decoder
        self.head = head

    def forward(
        self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor
    ) -> dict[str, Tensor]:
        """Feed a token.

        Args:
            token: (1, 1) int64.
            position: (1,) int64, how many tokens were fed before it; less than the capacity.
            keys: (layers, heads, frames, width of a head) float32, of the window.
            values: as `keys`.

        Returns:
            `logits` (1, tokens) float32.
        """
        seen = self.seen(position)
        rows = self.decoder.embed_tokens(token)
        turns = self.decoder.rotary_emb(rows, position_ids=position[None])
        for number, layer in enumerate(self.decoder.layers):
            normal = layer.input_layernorm(rows)
            attention = layer.self_attn
            query, key = apply_rotary_pos_emb(
                self.by_head(attention.q_proj(normal)),
                self.by_head(attention.k_proj(normal)),
                *turns,
            )
            value = self.by_head(attention.v_proj(normal))
            own = self.remembered(number, key, value, position)
            rows = rows + self._attend(attention, query, *own, seen)
            normal = layer.post_attention_layernorm(rows)
            attention = layer.encoder_attn
            query, heard = self.by_head(attention.q_proj(normal)), (keys[number], values[number])
            rows = rows + self._attend(attention, query, heard[0][None], heard[1][None], None)
            rows = rows + layer.mlp(layer.final_layernorm(rows))
        return {"logits": self.head(self.decoder.norm(rows))[:, 0]}

    def _attend(
        self,
        attention: MoonshineAttention,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        mixed = nn.functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=attention.scaling
        )
        projected: Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(2))
        return projected


class Moonshine(nn.Module):
    """A Moonshine of the transformers library as the programs of a recogniser.

    Attributes:
        listen: samples to keys and values.
        emit: a step of the decoder.

    Args:
        model: what `takes` is true of.
        normalise: as its preprocessor_config.json says by `do_normalize`.
    """

    def __init__(self, model: Any, normalise: bool = False) -> None:
        super().__init__()
        self.listen = MoonshineKeys(model.model.encoder, model.model.decoder, normalise)
        self.emit = MoonshineStep(model.model.decoder, model.proj_out)

    @staticmethod
    def takes(model: nn.Module) -> bool:
        """Whether it is a Moonshine that writes text, with a key of its own for every head."""
        if not isinstance(model, MoonshineForConditionalGeneration):
            return False
        config = model.config
        return bool(config.decoder_num_key_value_heads == config.decoder_num_attention_heads)
