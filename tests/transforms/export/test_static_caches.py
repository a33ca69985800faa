"""A cache of fixed size of transformers is state: an artifact's calls go on from each other."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import menagerie
from tests.pieces import assert_as_eager
from transforms import convert
from zoo.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


_SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 32,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 16,
}  # fmt: skip


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**_SIZES)).eval()


def _cache(model: Any) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=8)


def _decoder(model: Any) -> nn.Module:
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model.generation_config = GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=8,
        cache_config={"batch_size": 1, "max_cache_len": 8},
    )
    return TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=8).eval()


@pytest.mark.parametrize("is_given", [True, False], ids=["argument", "transformers' wrapper"])
def test_a_static_cache_is_state(is_given: bool, tmp_path: Path) -> None:
    """Of a language model that is fed token by token; eager's logits, and its cache as it was."""
    model = _llama()
    module, kwargs = model, {"past_key_values": _cache(model)}
    if not is_given:
        module, kwargs = _decoder(model), {}
    step = {"input_ids": torch.tensor([[3]]), "cache_position": torch.tensor([0])}
    made = convert(
        module, (), kwargs={**step, **kwargs}, calls=3, out=tmp_path / "out", measure_seconds=0
    )
    cache = _cache(model)
    with menagerie.open(made.folder) as session, torch.no_grad():
        for position, token in enumerate((3, 9, 4, 27, 3)):
            given = {"input_ids": [[token]], "cache_position": [position]}
            found = next(iter(session.run({n: np.array(v) for n, v in given.items()}).values()))
            tensors = {name: torch.tensor(value) for name, value in given.items()}
            expected = model(**tensors, past_key_values=cache).logits
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert not any(layer.is_initialized for each in kwargs.values() for layer in each.layers)


def test_a_sliding_static_cache_is_refused_and_a_whole_one_slides(tmp_path: Path) -> None:
    """A sliding layer counts in Python; one of whole layers answers alike, past the window."""
    from transformers import MistralConfig, MistralForCausalLM, StaticCache

    torch.manual_seed(0)
    config = MistralConfig(**_SIZES, sliding_window=3)
    model = MistralForCausalLM(config).eval()
    step = {"input_ids": torch.tensor([[3]]), "past_key_values": _cache(model)}
    with pytest.raises(UsageError, match=r"sliding layers.*sliding_window = None"):
        convert(model, (), kwargs=step, out=tmp_path / "out")
    config = copy.deepcopy(config)
    config.sliding_window, config.layer_types = None, ["full_attention"]
    step["past_key_values"] = StaticCache(config=config, max_cache_len=8)
    convert(model, (), kwargs=step, calls=3, out=tmp_path / "out", measure_seconds=0)
    sliding = _cache(model)
    tokens = [(torch.tensor([[token]]),) for token in (3, 9, 4, 27, 3, 5)]
    assert_as_eager(
        tmp_path / "out",
        lambda token: model(token, past_key_values=sliding).logits,
        *tokens,
        rtol=1e-4,
        atol=1e-5,
    )
