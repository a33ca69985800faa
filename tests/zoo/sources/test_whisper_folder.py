"""A Whisper in a folder as the hub lays it out: tokens, lists and text are its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "speech"))

from small_whisper import END, HEAD, NO_TIMESTAMPS, POSITIONS, SECONDS, small_whisper
from utterances import RATE, UTTERANCES

from menagerie.speech.recipe import WhisperHead
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
    from transformers import WhisperFeatureExtractor

TOKENS = NO_TIMESTAMPS + POSITIONS + 2
# Bytes as GPT-2 writes them: a space before a word, a character of two bytes in two pieces.
TEXT = ("a", "\u0120b", "\u0120c", "\u00c3", "\u00a9", *(f"\u0120w{n}" for n in range(35)))
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>",
           "<|translate|>", "<|notimestamps|>")  # fmt: skip
ENTRY = f"""\
version: 1
family: speech
models:
  tiny:
    summary: A Whisper in a folder as the hub lays it out
    source:
      kind: transformers
      architecture: WhisperForConditionalGeneration
      folder: tiny
      from_samples: true
    programs:
      - name: listen
        part: listen
        inputs: [{{name: samples, shape: [1, {SECONDS * RATE}]}}]
        outputs: [keys, values]
      - name: emit
        part: emit
        inputs:
          - {{name: token, shape: [1, 1], dtype: int64, sample: {{kind: integers, high: 9}}}}
          - {{name: position, shape: [1], dtype: int64, sample: {{kind: integers, high: 9}}}}
          - {{name: keys, shape: [2, 2, {POSITIONS}, 16]}}
          - {{name: values, shape: [2, 2, {POSITIONS}, 16]}}
        outputs: [logits]
    speech:
      frame: 320
      overlap: 0.0
      heads:
        whisper:
          {{kind: whisper, start: 1, end: 2, tasks: {{transcribe: 3}}, task: transcribe,
           no_timestamps: 4, most_tokens: 40}}
      vocabulary: {{kind: bytes, tokenizer: true, numbered: {TOKENS}}}
    targets: [cpu]
    licence: {{spdx: MIT, url: "https://opensource.org/license/mit", attribution: nobody}}
"""


def tokenizer() -> Tokenizer:
    """Forty pieces of text, the prompt's, and the times."""
    times = [f"<|{0.02 * n:.2f}|>" for n in range(POSITIONS + 1)]
    made = Tokenizer(BPE({piece: n for n, piece in enumerate(TEXT)}, []))
    made.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    made.add_tokens([AddedToken(time) for time in times])
    made.decoder = ByteLevel()
    return made


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """The library's model, saved with its tokenizer beside a manifest."""
    made = small_whisper()
    made.save_pretrained(tmp_path / "tiny")
    tokenizer().save(str(tmp_path / "tiny" / "tokenizer.json"))
    (tmp_path / "models.yaml").write_text(ENTRY)
    return made


def test_the_transcript_is_transformers_own(model: Any, tmp_path: Path) -> None:
    """Samples, features, language, tokens and text: by our programs, and by the library's."""
    spec = load_manifest(tmp_path).spec("tiny")
    loaded = load(
        "tiny", spec, origin=tmp_path / "models.yaml", random_weights=None, allow_factories=False
    )
    assert spec.speech is not None
    speech = with_pieces(spec.speech, spec.source, Context("tiny", tmp_path))  # type: ignore[arg-type]
    plain = recipe(speech)
    head = plain.heads["whisper"]
    assert isinstance(head, WhisperHead)
    assert head == HEAD  # the folder's numbers, not the entry's
    programs = {p.name: eager_program(loaded.module, p) for p in spec.programs}
    recogniser = Recogniser(plain, head, programs, "tiny")
    assert not recogniser.overlaps
    speller, emitted = Speller(plain.vocabulary), 0
    for name in ("tone of 2.21 s", "noise of 2.21 s", "silence", "00.flac"):
        heard, _ = recogniser.window(UTTERANCES[name])
        features = WhisperFeatureExtractor(chunk_length=SECONDS)(
            UTTERANCES[name], sampling_rate=RATE, return_tensors="pt"
        ).input_features
        said = model.generate(
            features, task="transcribe", return_timestamps=True, force_unique_generate_call=True
        )[0].tolist()
        tokens = [token for token in said if token < END]
        # What a window's end cuts is left to the next: the rest of the library's tokens.
        assert [each.token for each in heard] == tokens[: len(heard)]
        assert speller.written(tokens) == tokenizer().decode(tokens, skip_special_tokens=True)
        emitted += len(heard)
    assert emitted > 10
    accented = [TEXT.index("\u00c3"), TEXT.index("\u00a9")]
    assert speller.written(accented) == "\u00e9"


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    "content", [None, b"{", b"[]", b'{"eos_token_id": "x"}', b'{"lang_to_id": 3}']
)
def test_a_generation_that_cannot_be_read_is_an_error_of_the_source(
    tmp_path: Path, content: bytes | None
) -> None:
    """Absent or damaged: the file is named, and what to fix."""
    file = tmp_path / "tiny" / "generation_config.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    spec = load_manifest(tmp_path).spec("tiny")
    assert spec.speech is not None
    with pytest.raises(SourceError, match=r"generation_config\.json cannot be read"):
        with_pieces(spec.speech, spec.source, Context("tiny", tmp_path))  # type: ignore[arg-type]


def test_what_is_fed_is_remembered_and_positions_before_it_alone(model: Any) -> None:
    """The decoder's step by step scores are those of the whole sequence at once, twice over."""
    import torch

    from zoo.models.builders.recognisers import parts

    whisper = parts(model).eval()
    samples = torch.from_numpy(np.resize(UTTERANCES["tone of 1.3 s"], (1, SECONDS * RATE)))
    ids = torch.tensor([[41, 42, 44, 5, 6, 30]])
    with torch.no_grad():
        features = whisper.listen.log_mel(samples)
        expected = model(input_features=features, decoder_input_ids=ids).logits[0]
        heard = whisper.listen(samples)
        for _ in range(2):
            for position in range(ids.shape[1]):
                step = whisper.emit(ids[:, position, None], torch.tensor([position]), **heard)
                torch.testing.assert_close(
                    step["logits"][0], expected[position], rtol=1e-4, atol=1e-4
                )
