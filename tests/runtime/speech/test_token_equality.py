"""Artifacts emit the tokens, at the frames, that transformers' own generation emits in eager."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from small_parakeet import ENCODER, TRANSDUCER, balance, lively
from torch import nn
from utterances import FEW, RATE, TIE, UTTERANCES, Recorder, in_eager, lead

from menagerie.session import Session
from menagerie.speech.decoding import Emission
from menagerie.speech.recipe import CtcHead, Recipe, TransducerHead, Vocabulary
from menagerie.speech.recogniser import Program as Running
from menagerie.speech.recogniser import Recogniser
from transforms import convert
from transforms.export.prepare import Program
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
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

_FRAME, _BLANK, _WINDOW = 1280, 11, 8
_DURATIONS = (0, 1, 2, 3, 4)
_LONGEST = 64  # frames that the program takes


@dataclass
class _Family:
    """A head, what of transformers' is its reference, and its decoding step."""

    head: CtcHead | TransducerHead
    model: Any
    expected: Callable[[Any, np.ndarray], list[Emission]]


class _Hybrid:
    """Three models of the library around one encoder, and the programs that serve them all."""

    def __init__(self) -> None:
        torch.manual_seed(4)
        self.tdt: Any = ParakeetForTDT(ParakeetTDTConfig(**TRANSDUCER, durations=[*_DURATIONS]))
        self.rnnt: Any = ParakeetForRNNT(ParakeetRNNTConfig(**TRANSDUCER))
        config = ParakeetCTCConfig(vocab_size=12, pad_token_id=_BLANK, encoder_config=ENCODER)
        self.ctc: Any = ParakeetForCTC(config)
        for model in (self.tdt, self.rnnt, self.ctc):
            model.eval()
            lively(model)
            model.encoder = self.tdt.encoder
        self.rnnt.encoder_projector = self.tdt.encoder_projector
        self.listener = SpeechEncoder(
            self.tdt.encoder, self.tdt.encoder_projector, self.ctc.ctc_head
        ).eval()
        heard = torch.from_numpy(UTTERANCES["tone of 2.21 s"][: 27 * _FRAME])[None]
        with torch.no_grad():
            encoded = self.listener(heard, torch.tensor([heard.shape[1]]))["encoded"]
        for model in (self.tdt, self.rnnt):
            model.generation_config.decoder_start_token_id = _BLANK
            balance(model, encoded)

    def programs(self) -> dict[str, Program]:
        """What a bundle is converted from."""
        samples = torch.randn(1, 20 * _FRAME) * 0.1
        units = torch.export.Dim("units", min=2, max=_LONGEST)
        state = torch.zeros(2, 1, 24)
        step = (torch.zeros(1, 1, dtype=torch.int64), state, state, torch.randn(1, _WINDOW, 24))
        return {
            "listen": Program(
                self.listener,
                (samples, torch.tensor([19 * _FRAME + 17])),
                dynamic_shapes=({1: _FRAME * units}, None),
            ),
            "emit_tdt": Program(self._emitter(self.tdt), step),
            "emit_rnnt": Program(self._emitter(self.rnnt), step),
        }

    def families(self) -> dict[str, _Family]:
        """Each kind of head, with the library's own generation."""
        tdt = TransducerHead(
            kind="transducer", listen="listen", emit="emit_tdt", blank=_BLANK, durations=_DURATIONS
        )
        rnnt = TransducerHead(kind="transducer", listen="listen", emit="emit_rnnt", blank=_BLANK)
        ctc = CtcHead(kind="ctc", listen="listen", blank=_BLANK)
        return {
            "ctc": _Family(ctc, self.ctc, _ctc_of_transformers),
            "tdt": _Family(tdt, self.tdt, _transducer_of_transformers),
            "rnnt": _Family(rnnt, self.rnnt, _transducer_of_transformers),
        }

    def run(self, program: str) -> Any:
        """A program in eager PyTorch."""
        return in_eager(self.programs()[program].module)

    def _emitter(self, model: Any) -> nn.Module:
        return TransducerStep(model.decoder, model.joint, 12).eval()


def _features(samples: np.ndarray) -> Any:
    return ParakeetFeatureExtractor()(samples, sampling_rate=RATE, return_tensors="pt")


def _ctc_of_transformers(model: Any, samples: np.ndarray) -> list[Emission]:
    best = model.generate(**_features(samples))[0].tolist()
    expected, frame = [], 0
    for token, group in itertools.groupby(best):
        end = frame + len(list(group))
        if token != _BLANK:
            expected.append(Emission(token, frame, end))
        frame = end
    return expected


def _transducer_of_transformers(model: Any, samples: np.ndarray) -> list[Emission]:
    frames = -(-(len(samples) // 160) // 8)
    said = model.generate(**_features(samples), max_new_tokens=10 * frames - 1)
    tokens, advances = said.sequences[0, 1:].tolist(), said.durations[0, 1:].tolist()
    starts = [0, *itertools.accumulate(advances)]
    timed = isinstance(model, ParakeetForTDT)
    return [
        Emission(token, start, start + (advance if timed else 1))
        for token, start, advance in zip(tokens, starts, advances, strict=False)
        if token != _BLANK
    ]


@pytest.fixture(scope="module")
def hybrid() -> _Hybrid:
    """The models, made once."""
    return _Hybrid()


@pytest.fixture(scope="module")
def artifact(
    request: pytest.FixtureRequest, hybrid: _Hybrid, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Running]]:
    """The converted programs."""
    folder = tmp_path_factory.mktemp(request.param) / "bundle"
    made = convert(hybrid.programs(), target=request.param, out=folder, measure_seconds=0.0)
    with ExitStack() as opened:
        yield {
            each.name: Running(
                opened.enter_context(Session(folder, each.name, 1)).run,
                each.inputs,
                each.dimensions,
            )
            for each in made.manifest.programs
        }


_CASES = [
    pytest.param("cpu", FEW, id="cpu"),
    pytest.param("cpu", [*UTTERANCES], id="cpu-all", marks=pytest.mark.sweep),
    pytest.param("metal", FEW, id="metal", marks=pytest.mark.sweep),
    pytest.param("metal", [*UTTERANCES], id="metal-all", marks=pytest.mark.sweep),
]


@pytest.mark.parametrize(("artifact", "names"), _CASES, indirect=["artifact"], scope="module")
@pytest.mark.parametrize("family", ["ctc", "tdt", "rnnt"])
def test_token_equality(
    hybrid: _Hybrid,
    artifact: dict[str, Running],
    names: list[str],
    family: str,
    record_property: Any,
) -> None:
    """Four utterances or twenty; where a token differs, eager's scores must have been as good as equal."""
    assert len(UTTERANCES) == 20
    chosen = hybrid.families()[family]
    eager = {name: replace(each, run=hybrid.run(name)) for name, each in artifact.items()}
    emitted, leads = 0, {}
    for name in names:
        samples = UTTERANCES[name]
        expected = chosen.expected(chosen.model, samples)
        heard, said = _recognise(chosen.head, artifact, samples)
        emitted += len(expected)
        if heard != expected:
            reference, wanted = _recognise(chosen.head, eager, samples)
            assert reference == expected, name
            leads[name] = max(map(lead, wanted, said))
    record_property("leads", leads)
    assert all(0 < lead < TIE for lead in leads.values()), leads
    assert emitted > 2 * len(names), "the model says next to nothing"


def _recognise(
    head: CtcHead | TransducerHead, programs: Mapping[str, Running], samples: np.ndarray
) -> tuple[list[Emission], list[list[Mapping[str, np.ndarray]]]]:
    """The tokens, and what each program said to them."""
    recorders = {name: Recorder(programs[name].run) for name in sorted(head.programs)}
    recipe = Recipe(
        rate=RATE,
        frame=_FRAME,
        hop=160,
        overlap=0.0,
        heads={"only": head},
        vocabulary=Vocabulary(kind="plain", pieces=tuple("abcdefghijk")),
    )
    running = {name: replace(programs[name], run=each) for name, each in recorders.items()}
    heard = Recogniser(recipe, head, running, "test").recognise(samples)
    return heard, [each.said for each in recorders.values()]
