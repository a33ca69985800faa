"""A wav2vec 2.0 and a HuBERT of the transformers library small enough for a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import (
        HubertConfig,
        HubertForCTC,
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2ForCTC,
    )

if TYPE_CHECKING:
    from pathlib import Path

PIECES = ("<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "O", "'")
_CONFIG: dict[str, Any] = {
    "vocab_size": len(PIECES), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "conv_dim": (8,) * 7, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2, "initializer_range": 0.5,
}  # fmt: skip


def small_wav2vec2() -> Any:
    """As base models are: its first convolution is normalised over the whole recording."""
    torch.manual_seed(1)
    return Wav2Vec2ForCTC(Wav2Vec2Config(**_CONFIG)).eval()


def small_hubert() -> Any:
    """As large models are: every convolution is normalised frame by frame."""
    torch.manual_seed(2)
    kinds = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
    return HubertForCTC(HubertConfig(**_CONFIG, **kinds)).eval()


def tokenizer(folder: Path, **settings: Any) -> Any:
    """The library's, saved in a folder."""
    folder.mkdir(exist_ok=True)
    words = folder / "vocab.json"
    words.write_text(json.dumps({piece: number for number, piece in enumerate(PIECES)}))
    made = Wav2Vec2CTCTokenizer(str(words), **settings)
    made.save_pretrained(folder)
    return made
