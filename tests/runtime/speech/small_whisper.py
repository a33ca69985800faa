"""A Whisper of the transformers library small enough for a test, with something to say."""

from __future__ import annotations

from typing import Any

import torch

from menagerie.speech.recipe import WhisperHead
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

SECONDS = 6  # of a window
POSITIONS = SECONDS * 50
END, NO_TIMESTAMPS = 40, 46
_LONGEST = 40
HEAD = WhisperHead(
    kind="whisper", listen="listen", emit="emit", start=41, languages={"en": 42, "de": 43},
    task=44, end=END, no_timestamps=NO_TIMESTAMPS, latest_start=50, suppress=(1, 2, 7, 41, 45),
    begin_suppress=(20, END), most_tokens=_LONGEST,
)  # fmt: skip


def small_whisper() -> Any:
    """Forty tokens of text, two languages, two layers; weights wide enough to differ in opinion."""
    torch.manual_seed(3)
    config = WhisperConfig(
        vocab_size=NO_TIMESTAMPS + 1 + POSITIONS + 1, num_mel_bins=80, d_model=32,
        encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=64, decoder_layers=2,
        decoder_attention_heads=2, decoder_ffn_dim=64, max_source_positions=POSITIONS,
        max_target_positions=_LONGEST, pad_token_id=END, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=41, init_std=0.5,
    )  # fmt: skip
    model: Any = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():  # the library's positions would outweigh what is heard
        model.model.encoder.embed_positions.weight.mul_(0.1)
        model.model.decoder.embed_positions.weight.mul_(0.5)
        tokens = model.model.decoder.embed_tokens.weight
        tokens[END] = 1.2 * tokens[12]  # so that some windows end before they are full
    settings = model.generation_config
    settings.max_length = _LONGEST
    settings.is_multilingual = True
    settings.lang_to_id = {f"<|{code}|>": token for code, token in HEAD.languages.items()}
    settings.task_to_id = {"transcribe": 44, "translate": 45}
    settings.no_timestamps_token_id = NO_TIMESTAMPS
    settings.max_initial_timestamp_index = 50
    settings.suppress_tokens = [*HEAD.suppress]
    settings.begin_suppress_tokens = [*HEAD.begin_suppress]
    return model
