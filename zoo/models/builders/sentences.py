"""Sentence embeddings: BERT's last hidden state, its mean over tokens, scaled to length 1.

Sizes are those of all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang et al. 2020, "MiniLM").
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import BertConfig, BertModel


class SentenceEncoder(nn.Module):
    """A map from a sentence's tokens to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
        self.bert = BertModel(BertConfig(**sizes))
        # The checkpoint has this buffer, which transformers 5 computes.
        self.bert.embeddings.register_buffer("position_ids", torch.arange(512)[None])

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding (1, 384) of (1, n) tokens, including [CLS] and [SEP]."""
        return normalize(self.bert(tokens).last_hidden_state.mean(1), dim=-1)
