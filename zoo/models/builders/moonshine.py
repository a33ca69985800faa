"""Moonshine, from samples to what a decoding loop asks for: the programs of a recogniser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from zoo.models.builders.attention_decoder import CrossKeys, TokenDecoder
from zoo.models.builders.wav2vec2 import level
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import MoonshineForConditionalGeneration
    from transformers.models.moonshine.modeling_moonshine import apply_rotary_pos_emb

if TYPE_CHECKING:
    from transformers.models.moonshine.modeling_moonshine import (
        MoonshineAttention,
        MoonshineDecoder,
        MoonshineEncoder,
    )

__all__ = ["Emitter", "Listener", "Moonshine"]


class Listener(CrossKeys):
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


class Emitter(TokenDecoder):
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
        self.listen = Listener(model.model.encoder, model.model.decoder, normalise)
        self.emit = Emitter(model.model.decoder, model.proj_out)

    @staticmethod
    def takes(model: nn.Module) -> bool:
        """Whether it is a Moonshine that writes text, with a key of its own for every head."""
        if not isinstance(model, MoonshineForConditionalGeneration):
            return False
        config = model.config
        return bool(config.decoder_num_key_value_heads == config.decoder_num_attention_heads)
