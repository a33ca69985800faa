"""A folder as the hub lays one out: its tokenizer's pieces are the text of a transcript."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Metaspace
from tokenizers.models import BPE

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "speech"))

from small_parakeet import TRANSDUCER, balance, lively

from menagerie.speech.recogniser import Recogniser
from menagerie.speech.transcript import Speller
from transforms.eager import eager_program
from zoo.errors import SourceError
from zoo.manifest import load_manifest
from zoo.models.torchvision_operators import torchvision_operators
from zoo.sources import load
from zoo.sources.context import Context
from zoo.sources.transformers import with_pieces
from zoo.speech import recipe

with torchvision_operators():
    from transformers import ParakeetFeatureExtractor, ParakeetForTDT, ParakeetTDTConfig

if TYPE_CHECKING:
    from zoo.spec import ModelSpec

PIECES = ("<unk>", "▁", "▁a", "b", "c", "▁de", "f", "g", "h", "▁i", "j")
ENTRY = """\
version: 1
family: speech
models:
  tiny:
    summary: A Parakeet in a folder as the hub lays it out
    source: {kind: transformers, architecture: ParakeetForTDT, folder: tiny, from_samples: true}
    programs:
      - name: listen
        part: listen
        inputs:
          - {name: samples, shape: [1, samples]}
          - name: lengths
            shape: [1]
            dtype: int64
            sample: {kind: integers, low: 2000, high: 9000}
        outputs: [encoded]
        dimensions: {samples: {low: 2560, high: 81920, multiple_of: 1280}}
      - name: emit
        part: emit
        inputs:
          - {name: token, shape: [1, 1], dtype: int64, sample: {kind: integers, low: 0, high: 12}}
          - {name: hidden, shape: [2, 1, 24]}
          - {name: cell, shape: [2, 1, 24]}
          - {name: frames, shape: [1, 8, 24]}
        outputs: [logits, durations, hidden, cell]
    speech:
      frame: 1280
      hop: 160
      heads: {tdt: {kind: transducer, blank: 11, durations: [0, 1, 2, 3, 4]}}
      vocabulary: {kind: sentencepiece, tokenizer: true, numbered: 11}
    targets: [cpu]
    licence: {spdx: MIT, url: "https://opensource.org/license/mit", attribution: nobody}
"""


def tokenizer() -> Tokenizer:
    """Eleven pieces; the first is no text."""
    made = Tokenizer(BPE({piece: n for n, piece in enumerate(PIECES)}, []))
    made.add_special_tokens([AddedToken("<unk>", special=True)])
    made.decoder = Metaspace()
    return made


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """A model that says pieces, saved with its tokenizer beside a manifest."""
    torch.manual_seed(4)
    made: Any = ParakeetForTDT(ParakeetTDTConfig(**TRANSDUCER, durations=[0, 1, 2, 3, 4])).eval()
    lively(made)
    made.generation_config.decoder_start_token_id = 11
    features = ParakeetFeatureExtractor()(sound(), sampling_rate=16_000, return_tensors="pt")
    with torch.no_grad():
        hidden = made.encoder(**features).last_hidden_state
        balance(made, made.encoder_projector(hidden))
    made.save_pretrained(tmp_path / "tiny")
    tokenizer().save(str(tmp_path / "tiny" / "tokenizer.json"))
    (tmp_path / "models.yaml").write_text(ENTRY)
    return made


def sound() -> np.ndarray:
    """Two seconds of a tone that rises and falls."""
    times = np.arange(2 * 16_000) / 16_000
    return (0.3 * np.sin(2 * np.pi * times * (200 + 700 * np.sin(3 * times)))).astype(np.float32)


def entry(folder: Path) -> ModelSpec:
    """That of the manifest in a folder."""
    return load_manifest(folder).spec("tiny")


def test_the_transcript_is_transformers_own(model: Any, tmp_path: Path) -> None:
    """Samples, features, tokens and text: by our programs and pieces, and by the library's."""
    spec, origin = entry(tmp_path), tmp_path / "models.yaml"
    loaded = load("tiny", spec, origin=origin, random_weights=None, allow_factories=False)
    assert spec.speech is not None
    speech = with_pieces(spec.speech, spec.source, Context("tiny", tmp_path))  # type: ignore[arg-type]
    plain = recipe(speech)
    programs = {p.name: eager_program(loaded.module, p) for p in spec.programs}
    heard = Recogniser(plain, plain.heads["tdt"], programs, "tiny").recognise(sound())
    features = ParakeetFeatureExtractor()(sound(), sampling_rate=16_000, return_tensors="pt")
    said = model.generate(**features, max_new_tokens=10 * 25 - 1).sequences[0, 1:]
    tokens = [token for token in said.tolist() if token != 11]
    assert tokens, "a model that says nothing proves nothing"
    assert [each.token for each in heard] == tokens
    expected = tokenizer().decode(tokens, skip_special_tokens=True)
    assert Speller(plain.vocabulary).written(tokens).strip() == expected.strip()


@pytest.mark.usefixtures("model")
def test_another_number_of_tokens_is_refused(tmp_path: Path) -> None:
    """The entry counts what the joint network scores; a tokenizer of another model does not fit."""
    spec = entry(tmp_path)
    assert spec.speech is not None
    words = spec.speech.vocabulary.model_copy(update={"numbered": 10})
    speech = spec.speech.model_copy(update={"vocabulary": words})
    with pytest.raises(SourceError, match="has 11 tokens, not 0 to 9"):
        with_pieces(speech, spec.source, Context("tiny", tmp_path))  # type: ignore[arg-type]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("content", [None, b"{", b"\xff", b"[]"])
def test_a_tokenizer_that_cannot_be_read_is_an_error_of_the_source(
    tmp_path: Path, content: bytes | None
) -> None:
    """Absent or damaged: the file is named, and what to fix."""
    file = tmp_path / "tiny" / "tokenizer.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    spec = entry(tmp_path)
    assert spec.speech is not None
    with pytest.raises(SourceError, match=r"tokenizer\.json cannot be read"):
        with_pieces(spec.speech, spec.source, Context("tiny", tmp_path))  # type: ignore[arg-type]
