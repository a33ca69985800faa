"""A Whisper's artifact says the tokens that transformers' own generation says in eager."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from small_whisper import END, HEAD, NO_TIMESTAMPS, SECONDS, small_whisper
from utterances import FEW, RATE, TIE, UTTERANCES, Recorder, converted, in_eager

from menagerie.speech.decoding import Decoder, greedy_whisper
from transforms.export.prepare import Program
from zoo.models.builders.recognisers import parts
from zoo.models.torchvision_operators import torchvision_operators

with torchvision_operators():
    from transformers import WhisperFeatureExtractor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]

# With the language given and no times; and with the language heard and times.
HEADS = {"plain": replace(HEAD, timestamps=False, language="de"), "timed": HEAD}


@pytest.fixture(scope="module")
def model() -> Any:
    """The library's model."""
    return small_whisper()


@pytest.fixture(scope="module")
def artifact(
    request: pytest.FixtureRequest, model: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Run]]:
    """The converted programs."""
    whisper = parts(model).eval()
    samples = torch.randn(1, SECONDS * RATE) * 0.1
    with torch.no_grad():
        heard = whisper.listen(samples)
    step = (torch.tensor([[5]]), torch.tensor([0]), heard["keys"], heard["values"])
    programs = {"listen": Program(whisper.listen, (samples,)), "emit": Program(whisper.emit, step)}
    folder = tmp_path_factory.mktemp(request.param) / "bundle"
    with converted(programs, request.param, folder) as runs:
        yield runs


def eager(model: Any) -> dict[str, Run]:
    """The programs in eager PyTorch."""
    whisper = parts(model).eval()
    return {"listen": in_eager(whisper.listen), "emit": in_eager(whisper.emit)}


def expected(model: Any, samples: np.ndarray, kind: str) -> list[int]:
    """What the library's own generation says in a window."""
    features = WhisperFeatureExtractor(chunk_length=SECONDS)(
        samples, sampling_rate=RATE, return_tensors="pt"
    ).input_features
    asked = {"plain": {"language": "de", "return_timestamps": False}}
    said = model.generate(
        features,
        task="transcribe",
        force_unique_generate_call=True,
        **asked.get(kind, {"return_timestamps": True}),
    )
    tokens: list[int] = said[0].tolist()
    prompt = 3 if kind == "timed" else 4
    tokens = tokens[prompt:] if tokens[0] == HEAD.start else tokens
    return tokens[: tokens.index(END)] if END in tokens else tokens


def heard(
    programs: Mapping[str, Run], samples: np.ndarray, kind: str
) -> tuple[list[int], Recorder]:
    """The tokens of a window by our loop, and what its decoder's steps gave."""
    window = np.zeros((1, SECONDS * RATE), np.float32)
    window[0, : len(samples)] = samples
    found, recorder = programs["listen"]({"samples": window}), Recorder(programs["emit"])
    decoder = Decoder(recorder, found["keys"], found["values"])
    return greedy_whisper(HEADS[kind], decoder), recorder


def lead(wanted: list[int], found: list[int], reference: Recorder) -> float:
    """By how much eager preferred its first token that differs, relative to its largest score."""
    pairs = zip([*wanted, END], [*found, END], strict=False)
    first, (ours, theirs) = next((n, p) for n, p in enumerate(pairs) if p[0] != p[1])
    step = len(reference.said) - len(wanted) + first - (len(wanted) < HEAD.most_tokens)
    scores = reference.said[step]["logits"][0]
    return float((scores[ours] - scores[theirs]) / np.abs(scores).max())


CASES = [
    pytest.param("cpu", FEW, id="cpu"),
    pytest.param("cpu", [*UTTERANCES], id="cpu-all", marks=pytest.mark.sweep),
    pytest.param("metal", [*UTTERANCES], id="metal-all", marks=pytest.mark.sweep),
]


@pytest.mark.parametrize(("artifact", "names"), CASES, indirect=["artifact"], scope="module")
@pytest.mark.parametrize("kind", HEADS)
def test_token_equality(
    model: Any, artifact: dict[str, Run], kind: str, names: list[str], record_property: Any
) -> None:
    """Where a token differs, eager's scores of both must have been as good as equal."""
    leads, emitted = {}, set[tuple[int, ...]]()
    for name in names:
        wanted = expected(model, UTTERANCES[name], kind)
        found, _ = heard(artifact, UTTERANCES[name], kind)
        emitted.add(tuple(wanted))
        if found != wanted:
            said, reference = heard(eager(model), UTTERANCES[name], kind)
            assert said == wanted, name
            leads[name] = lead(wanted, found, reference)
    record_property("leads", leads)
    assert all(0 < each < TIE for each in leads.values()), leads
    assert len(emitted) == len(names), "the model hears no difference"


@pytest.mark.sweep
@pytest.mark.parametrize("kind", HEADS)
def test_the_loop_is_the_librarys(model: Any, kind: str) -> None:
    """All twenty utterances, by eager programs: prompt, suppression, times, and the end."""
    assert len(UTTERANCES) == 20
    programs, ended, timed = eager(model), 0, 0
    for name, samples in UTTERANCES.items():
        said, _ = heard(programs, samples, kind)
        assert said == expected(model, samples, kind), name
        ended += len(said) < HEAD.most_tokens - 4
        timed += sum(token > NO_TIMESTAMPS for token in said)
    assert 0 < ended < 20
    assert timed > 20
