"""A Moonshine of the transformers library small enough for a test, with something to say."""

from __future__ import annotations

from typing import Any

import torch

from menagerie.speech.recipe import AttentionHead
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import MoonshineConfig, MoonshineForConditionalGeneration

TOKENS, LONGEST, END = 40, 24, 2
HEAD = AttentionHead(
    kind="attention", listen="listen", emit="emit", start=1, end=END, most_tokens=LONGEST
)


def small_moonshine() -> Any:
    """Forty tokens, two layers, heads of 10 that are padded; wide enough to differ in opinion."""
    torch.manual_seed(5)
    config = MoonshineConfig(
        vocab_size=TOKENS, hidden_size=20, intermediate_size=32, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=2, decoder_num_attention_heads=2,
        max_position_embeddings=LONGEST, pad_head_dim_to_multiple_of=8, initializer_range=0.5,
        partial_rotary_factor=0.62, pad_token_id=END,
    )  # fmt: skip
    model: Any = MoonshineForConditionalGeneration(config).eval()
    with torch.no_grad():
        tokens = model.model.decoder.embed_tokens.weight
        tokens[END] = 1.2 * tokens[38]  # so that some windows end before they are full
    model.generation_config.max_length = LONGEST
    return model
