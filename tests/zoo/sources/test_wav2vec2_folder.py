"""A wav2vec 2.0 in a folder as the hub lays it out: characters and normalisation are its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "speech"))

from small_wav2vec2 import PIECES, small_hubert, small_wav2vec2, tokenizer
from utterances import RATE, UTTERANCES

from menagerie.speech.recipe import CtcHead
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
    from transformers import Wav2Vec2FeatureExtractor

if TYPE_CHECKING:
    from zoo.spec import ModelSpec, SpeechSpec

ENTRY = """\
version: 1
family: speech
models:
  tiny:
    summary: A recogniser in a folder as the hub lays it out
    source: {{kind: transformers, architecture: {0}, folder: tiny, from_samples: true}}
    programs:
      - name: listen
        part: listen
        inputs: [{{name: samples, shape: [1, samples]}}]
        outputs: [logits]
        dimensions: {{samples: {{low: 720, high: 80000}}}}
    speech:
      frame: 320
      heads: {{ctc: {{kind: ctc, blank: 9}}}}
      vocabulary: {{kind: plain, tokenizer: true, numbered: {1}}}
    targets: [cpu]
    licence: {{spdx: MIT, url: "https://opensource.org/license/mit", attribution: nobody}}
"""


def make(folder: Path, model: Any, settings: dict[str, Any], **words: Any) -> Any:
    """An entry and its folder; the library's tokenizer of it."""
    model.save_pretrained(folder / "tiny")
    (folder / "tiny" / "preprocessor_config.json").write_text(json.dumps(settings))
    (folder / "models.yaml").write_text(ENTRY.format(type(model).__name__, len(PIECES)))
    return tokenizer(folder / "tiny", **words)


def read(folder: Path) -> tuple[ModelSpec, SpeechSpec]:
    """The entry, and its speech with what is in the folder."""
    spec = load_manifest(folder).spec("tiny")
    assert spec.speech is not None
    return spec, with_pieces(spec.speech, spec.source, Context("tiny", folder))  # type: ignore[arg-type]


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("made", [small_wav2vec2, small_hubert])
def test_the_transcript_is_transformers_own(tmp_path: Path, made: Any, normalised: bool) -> None:
    """Samples, normalisation, blank, characters and text: by our program, and by the library's."""
    model = made()
    library = make(tmp_path, model, {"do_normalize": normalised}, do_lower_case=normalised)
    spec, speech = read(tmp_path)
    origin = tmp_path / "models.yaml"
    loaded = load("tiny", spec, origin=origin, random_weights=None, allow_factories=False)
    plain = recipe(speech)
    head = plain.heads["ctc"]
    assert isinstance(head, CtcHead)
    assert head.blank == PIECES.index("<pad>")  # the folder's, not the entry's
    programs = {p.name: eager_program(loaded.module, p) for p in spec.programs}
    recogniser, speller = Recogniser(plain, head, programs, "tiny"), Speller(plain.vocabulary)
    texts = set()
    for name in ("tone of 2.21 s", "noise of 2.21 s", "one click", "00.flac"):
        features = Wav2Vec2FeatureExtractor(do_normalize=normalised)(
            UTTERANCES[name], sampling_rate=RATE, return_tensors="pt"
        )
        with torch.inference_mode():
            best = model(**features).logits.argmax(-1)
        text = library.batch_decode(best)[0]
        for special in ("<s>", "</s>", "<unk>"):
            text = text.replace(special, "")
        heard = recogniser.recognise(UTTERANCES[name])
        assert speller.written([one.token for one in heard]).strip() == text.strip()
        texts.add(text)
    assert len(texts) == 4
    assert any(text != text.upper() for text in texts) is normalised  # lower case is asked with it


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vocab.json", None),
        ("vocab.json", b"{"),
        ("vocab.json", b"[]"),
        ("vocab.json", b'{"eng": {"a": 0}}'),  # of several languages
        ("vocab.json", b'{"a": 0}'),  # without a blank
        ("tokenizer_config.json", None),
        ("tokenizer_config.json", b"3"),
    ],
)
def test_characters_that_cannot_be_read_are_an_error_of_the_source(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    """Absent, damaged or another thing: the file is named, and what to fix."""
    make(tmp_path, small_wav2vec2(), {})
    place = tmp_path / "tiny" / file
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(SourceError, match=r"vocab\.json or tokenizer_config\.json cannot be read"):
        read(tmp_path)


def test_other_characters_than_the_model_scores_are_refused(tmp_path: Path) -> None:
    """The entry counts them."""
    make(tmp_path, small_wav2vec2(), {})
    (tmp_path / "tiny" / "vocab.json").write_text('{"<pad>": 0, "a": 1}')
    with pytest.raises(SourceError, match=r"vocab\.json has 2 tokens, not 0 to 9"):
        read(tmp_path)


def test_a_preprocessor_that_cannot_be_read_is_an_error_of_the_source(tmp_path: Path) -> None:
    """Whether samples are normalised is not guessed."""
    make(tmp_path, small_wav2vec2(), {})
    (tmp_path / "tiny" / "preprocessor_config.json").write_text("[]")
    spec, origin = load_manifest(tmp_path).spec("tiny"), tmp_path / "models.yaml"
    with pytest.raises(SourceError, match=r"preprocessor_config\.json cannot be read"):
        load("tiny", spec, origin=origin, random_weights=None, allow_factories=False)
