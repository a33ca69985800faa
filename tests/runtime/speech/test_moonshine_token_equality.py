"""A Moonshine's artifact says the tokens that transformers' own generation says in eager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from small_moonshine import END, HEAD, LONGEST, TOKENS, small_moonshine
from utterances import RATE, TIE, UTTERANCES, Recorder, converted, in_eager, lead

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.speech.recipe import Recipe, Vocabulary
from menagerie.speech.recogniser import Program as Running
from menagerie.speech.recogniser import Recogniser
from transforms.export.prepare import Program
from zoo.models.builders.recognisers import parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from utterances import Run

_LOW, _HIGH = 1279, 60_000
_RECIPE = Recipe(
    rate=RATE, frame=384, overlap=0.0, heads={"moonshine": HEAD},
    vocabulary=Vocabulary(kind="sentencepiece", pieces=tuple(f"\u2581w{n}" for n in range(TOKENS))),
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    """The library's model."""
    return small_moonshine()


@pytest.fixture(scope="module")
def artifact(
    request: pytest.FixtureRequest, model: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Run]]:
    """The converted programs."""
    moonshine, samples = parts(model).eval(), torch.randn(1, 8000) * 0.1
    with torch.no_grad():
        heard = moonshine.listen(samples)
    step = (torch.tensor([[5]]), torch.tensor([0]), heard["keys"], heard["values"])
    frames = torch.export.Dim("frames", min=2, max=_HIGH // 384)
    programs = {
        "listen": Program(
            moonshine.listen,
            (samples,),
            dynamic_shapes=({1: torch.export.Dim("samples", min=_LOW, max=_HIGH)},),
        ),
        "emit": Program(
            moonshine.emit, step, dynamic_shapes=(None, None, {2: frames}, {2: frames}), calls=3
        ),
    }
    folder = tmp_path_factory.mktemp(request.param) / "bundle"
    with converted(programs, request.param, folder) as runs:
        yield runs


def _eager(model: Any) -> dict[str, Run]:
    """The programs in eager PyTorch."""
    moonshine = parts(model).eval()
    return {"listen": in_eager(moonshine.listen), "emit": in_eager(moonshine.emit)}


def _expected(model: Any, samples: np.ndarray) -> list[int]:
    """What the library's own generation says, without first and last."""
    said: list[int] = model.generate(torch.from_numpy(samples)[None])[0].tolist()[1:]
    return said[: said.index(END)] if END in said else said


def _heard(programs: Mapping[str, Run], samples: np.ndarray) -> tuple[list[int], Recorder]:
    """The tokens of a recording by our loop, and what its decoder's steps gave."""
    recorder = Recorder(programs["emit"])
    takes = {
        "listen": (TensorSpec("samples", "float32", (1, "samples")),),
        "emit": (TensorSpec("position", "int64", (1,)),),
    }
    running = {
        "listen": Running(programs["listen"], takes["listen"], {"samples": (_LOW, _HIGH, 1)}),
        "emit": Running(recorder, takes["emit"], {}),
    }
    heard, _ = Recogniser(_RECIPE, HEAD, running, "test").window(samples)
    return [one.token for one in heard], recorder


# A conversion takes half a minute: Parakeet's and Whisper's are made always, this in the sweep.
CASES = [
    pytest.param(target, [*UTTERANCES], id=target, marks=pytest.mark.sweep)
    for target in ("cpu", "metal")
]


@pytest.mark.parametrize(("artifact", "names"), CASES, indirect=["artifact"], scope="module")
def test_token_equality(
    model: Any, artifact: dict[str, Run], names: list[str], record_property: Any
) -> None:
    """Where a token differs, eager's scores must have been as good as equal."""
    leads, emitted = {}, set[tuple[int, ...]]()
    for name in names:
        wanted = _expected(model, UTTERANCES[name])
        found, recorder = _heard(artifact, UTTERANCES[name])
        emitted.add(tuple(wanted))
        if found != wanted:
            said, reference = _heard(_eager(model), UTTERANCES[name])
            assert said == wanted, name
            leads[name] = lead(reference.said, recorder.said)
    record_property("leads", leads)
    assert all(0 < each < TIE for each in leads.values()), leads
    assert len(emitted) == len(names), "the model hears no difference"


def test_the_loop_is_the_librarys(model: Any) -> None:
    """All twenty utterances, by eager programs: some end, some are full."""
    assert len(UTTERANCES) == 20
    programs, ended = _eager(model), 0
    for name, samples in UTTERANCES.items():
        said, _ = _heard(programs, samples)
        assert said == _expected(model, samples), name
        ended += len(said) < LONGEST - 1
    assert 0 < ended < 20


def test_what_was_fed_before_leaves_no_trace(model: Any) -> None:
    """Step by step the scores are those of the whole sequence at once, twice over."""
    moonshine = parts(model).eval()
    samples = torch.from_numpy(UTTERANCES["tone of 1.3 s"])[None]
    ids = torch.tensor([[1, 5, 6, 30, 7]])
    with torch.no_grad():
        expected = model(input_values=samples, decoder_input_ids=ids).logits[0]
        heard = moonshine.listen(samples)
        for _ in range(2):
            for position in range(ids.shape[1]):
                step = moonshine.emit(ids[:, position, None], torch.tensor([position]), **heard)
                torch.testing.assert_close(
                    step["logits"][0], expected[position], rtol=1e-4, atol=1e-4
                )
