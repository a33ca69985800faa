"""Greedy decoding, by hand and against transformers' own loops in eager PyTorch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from small_parakeet import ENCODER, TRANSDUCER, balance, lively

from menagerie.speech.decoding import Emission, greedy_ctc, greedy_transducer
from menagerie.speech.recipe import TransducerHead
from zoo.models.builders.parakeet import SpeechEncoder, TransducerStep
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import (
        ParakeetCTCConfig,
        ParakeetFeatureExtractor,
        ParakeetForCTC,
        ParakeetForRNNT,
        ParakeetForTDT,
        ParakeetRNNTConfig,
        ParakeetTDTConfig,
    )

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = (0.2, 0.31, 0.9, 1.7, 3.03)
_RATE = 16_000


def _recording(seconds: float, seed: int) -> np.ndarray:
    """Noise whose loudness and pitch change, so that frames differ."""
    rng = np.random.default_rng(seed)
    times = np.arange(int(seconds * _RATE)) / _RATE
    tone = np.sin(2 * np.pi * times * (200 + 900 * np.sin(3 * times)))
    noise = rng.standard_normal(len(times)) * np.abs(np.sin(5 * times))
    return (0.2 * tone + 0.1 * noise).astype(np.float32)


def _listen(listener: SpeechEncoder, samples: np.ndarray) -> tuple[dict[str, torch.Tensor], int]:
    """What a listener makes of a recording padded to whole frames, and how many are real."""
    padded = torch.zeros(1, -(-len(samples) // 1280) * 1280)
    padded[0, : len(samples)] = torch.from_numpy(samples)
    with torch.inference_mode():
        return listener(padded, torch.tensor([len(samples)])), -(-(len(samples) // 160) // 8)


def test_ctc_takes_repetitions_together_and_leaves_blanks_out() -> None:
    """A token begins at its first frame and ends after its last; a blank parts two of a kind."""
    best = [3, 3, 0, 0, 0, 3, 1, 1, 2, 3]
    logits = np.eye(4, dtype=np.float32)[best]

    assert greedy_ctc(logits, blank=3) == [Emission(0, 2, 5), Emission(1, 6, 8), Emission(2, 8, 9)]
    assert greedy_ctc(np.eye(4, dtype=np.float32)[[1, 3, 1]], blank=3) == [
        Emission(1, 0, 1),
        Emission(1, 2, 3),
    ]
    assert greedy_ctc(logits[:0], blank=3) == []


@pytest.mark.parametrize("seconds", _SECONDS)
def test_ctc_emits_the_tokens_of_transformers(seconds: float) -> None:
    """Features, encoder and head from samples give what the library's processor and model give."""
    torch.manual_seed(1)
    config = ParakeetCTCConfig(vocab_size=13, pad_token_id=12, encoder_config=ENCODER)
    model = ParakeetForCTC(config).eval()
    lively(model)
    listener = SpeechEncoder(model.encoder, None, model.ctc_head).eval()
    samples = _recording(seconds, 3)

    features = ParakeetFeatureExtractor()(samples, sampling_rate=_RATE, return_tensors="pt")
    wanted = model.generate(**features)[0].tolist()
    results, frames = _listen(listener, samples)

    expected = [token for token, _ in itertools.groupby(wanted) if token != 12]
    heard = greedy_ctc(results["logits"][0, :frames].numpy(), 12)
    assert [one.token for one in heard] == expected
    assert len(expected) > 1 or seconds < 1


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("durations", [(0, 1, 2, 3, 4), ()], ids=["tdt", "rnnt"])
def test_transducers_emit_the_tokens_of_transformers_at_its_frames(
    durations: tuple[int, ...], window: int
) -> None:
    """Whatever the window, tokens and their frames are those of the library's own generation."""
    torch.manual_seed(4)
    if durations:
        model = ParakeetForTDT(ParakeetTDTConfig(**TRANSDUCER, durations=list(durations))).eval()
    else:
        model = ParakeetForRNNT(ParakeetRNNTConfig(**TRANSDUCER)).eval()
    lively(model)
    listener = SpeechEncoder(model.encoder, model.encoder_projector, None).eval()
    emitter = TransducerStep(model.decoder, model.joint, 12).eval()
    balance(model, _listen(listener, _recording(3.0, 9))[0]["encoded"])
    model.generation_config.decoder_start_token_id = 11
    head = TransducerHead(
        kind="transducer", listen="listen", emit="emit", blank=11, durations=durations
    )

    def emit(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: torch.from_numpy(value) for name, value in inputs.items()}
        with torch.inference_mode():
            return {name: value.numpy() for name, value in emitter(**given).items()}

    tokens: list[int] = []
    for seed, seconds in enumerate(_SECONDS):
        samples = _recording(seconds, seed)
        features = ParakeetFeatureExtractor()(samples, sampling_rate=_RATE, return_tensors="pt")
        results, frames = _listen(listener, samples)
        said = model.generate(**features, max_new_tokens=10 * frames - 1)
        steps, advances = said.sequences[0, 1:].tolist(), said.durations[0, 1:].tolist()
        starts = [0, *itertools.accumulate(advances)]
        expected = [
            Emission(token, start, start + (advance if durations else 1))
            for token, start, advance in zip(steps, starts, advances, strict=False)
            if token != 11
        ]

        encoded = results["encoded"][0, :frames].numpy()
        assert greedy_transducer(encoded, head, emit, window, (2, 1, 24)) == expected
        tokens += steps
    assert 10 < tokens.count(11) < len(tokens) - 10, "the model says one thing only"
