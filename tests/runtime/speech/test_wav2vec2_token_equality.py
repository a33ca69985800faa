"""Artifacts of wav2vec 2.0 and HuBERT hear the characters that transformers' own decoder hears."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from small_wav2vec2 import PIECES, small_hubert, small_wav2vec2, tokenizer
from utterances import RATE, TIE, UTTERANCES, Recorder, in_eager, lead

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.session import Session
from menagerie.speech.recipe import CtcHead, Recipe, Vocabulary
from menagerie.speech.recogniser import Program as Running
from menagerie.speech.recogniser import Recogniser
from transforms import convert
from transforms.export.prepare import Program
from zoo.models.builders.recognisers import parts
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import Wav2Vec2FeatureExtractor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from utterances import Run

_LOW, _HIGH = 720, 60_000
_MODELS = {"wav2vec2": small_wav2vec2, "hubert": small_hubert}
_HEAD = CtcHead(kind="ctc", listen="listen", blank=0)
_RECIPE = Recipe(
    rate=RATE, frame=320, overlap=0.0, heads={"ctc": _HEAD},
    vocabulary=Vocabulary(kind="plain", pieces=PIECES),
)  # fmt: skip

Heard = list[tuple[str, int, int]]  # characters, the frame they begin at, the first after them


class _Converted(NamedTuple):
    """A model of the library, and what runs its artifact."""

    model: Any
    run: Run


@pytest.fixture(scope="module")
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Converted]:
    """A family's model on a target."""
    family, target = request.param
    model = _MODELS[family]()
    samples = torch.export.Dim("samples", min=_LOW, max=_HIGH)
    program = Program(
        parts(model).eval().listen, (torch.randn(1, 8000) * 0.1,), dynamic_shapes=({1: samples},)
    )
    folder = tmp_path_factory.mktemp(family) / "bundle"
    convert({"listen": program}, target=target, out=folder, measure_seconds=0.0)
    with Session(folder, "listen", 1) as session:
        yield _Converted(model, session.run)


def _expected(model: Any, samples: np.ndarray, library: Any) -> Heard:
    """What the library's own feature extractor, model and tokenizer make of a recording."""
    features = Wav2Vec2FeatureExtractor()(samples, sampling_rate=RATE, return_tensors="pt")
    with torch.inference_mode():
        best = model(**features).logits.argmax(-1)
    (offsets,) = library.batch_decode(best, output_char_offsets=True).char_offsets
    return [(each["char"], each["start_offset"], each["end_offset"]) for each in offsets]


def _heard(run: Run, samples: np.ndarray) -> Heard:
    """The characters of a recording by our loop."""
    takes = (TensorSpec("samples", "float32", (1, "samples")),)
    program = Running(run, takes, {"samples": (_LOW, _HIGH, 1)})
    found = Recogniser(_RECIPE, _HEAD, {"listen": program}, "test").recognise(samples)
    return [(PIECES[one.token].replace("|", " "), one.start, one.end) for one in found]


# Conversions take long: Parakeet's and Whisper's are made always, these in the sweep.
_CASES = [
    pytest.param(each, [*UTTERANCES], id=f"{each[0]}-{each[1]}-all", marks=pytest.mark.sweep)
    for each in itertools.product(("wav2vec2", "hubert"), ("cpu", "metal"))
]


@pytest.mark.parametrize(("converted", "names"), _CASES, indirect=["converted"], scope="module")
def test_token_equality(
    converted: _Converted, names: list[str], tmp_path: Any, record_property: Any
) -> None:
    """Where a character differs, eager's scores must have been as good as equal."""
    assert len(UTTERANCES) == 20
    library, emitted, leads = tokenizer(tmp_path / "folder"), 0, {}
    for name in names:
        samples = UTTERANCES[name]
        wanted, recorder = _expected(converted.model, samples, library), Recorder(converted.run)
        emitted += len(wanted)
        if _heard(recorder, samples) != wanted:
            reference = Recorder(in_eager(parts(converted.model).eval().listen))
            assert _heard(reference, samples) == wanted, name
            leads[name] = lead(reference.said, recorder.said)
    record_property("leads", leads)
    assert all(0 < each < TIE for each in leads.values()), leads
    assert emitted > 5 * len(names), "the model says next to nothing"


@pytest.mark.parametrize("family", _MODELS)
def test_what_is_too_short_for_two_frames_is_padded(family: str) -> None:
    """One sample, and all lengths to the first that is heard as it is."""
    model = _MODELS[family]()
    recorder = Recorder(in_eager(parts(model).eval().listen))
    for length in (1, 399, 719, 720, 721):
        _heard(recorder, UTTERANCES["tone of 0.47 s"][:length])
    assert [said["logits"].shape for said in recorder.said] == [(1, 2, len(PIECES))] * 5
