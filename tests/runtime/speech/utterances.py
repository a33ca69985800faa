"""Recordings that every family is tried on, and what to do about a token that differs."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
import torch

from menagerie.session import Session
from transforms import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from transforms.export.prepare import Program

    Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
    Runs = dict[str, Run]

RATE = 16_000
TIE = 1e-4  # of the largest score: a lead so small may go the other way in float32
_SPEECH = Path(__file__).parents[3] / "zoo/models/spoken_digits/held_out"


def _utterances() -> dict[str, np.ndarray]:
    """Twenty recordings of 0.2 to 5 s: speech, tones, noise, silence; no two of one length."""
    rng = np.random.default_rng(7)
    found = {}
    for number, seconds in enumerate((0.2, 0.47, 1.3, 2.21)):
        times = np.arange(int(seconds * RATE)) / RATE
        tone = 0.3 * np.sin(2 * np.pi * times * (200 + 700 * np.sin((2 + number) * times)))
        found[f"tone of {seconds} s"] = tone
        found[f"noise of {seconds} s"] = rng.normal(0.0, 0.05 + 0.1 * number, len(times) + 111)
    # A converter's last bit. Of zeros alone the library's features are its rounding errors: each
    # is divided by their deviation.
    found["silence"] = rng.integers(-1, 2, int(1.7 * RATE)) / 32768
    found["one click"] = np.eye(1, int(0.9 * RATE), 4000)[0]
    for file in sorted(_SPEECH.glob("*.flac"))[: 20 - len(found)]:
        found[file.name], _ = soundfile.read(file)
    return {name: sound.astype(np.float32) for name, sound in found.items()}


UTTERANCES = _utterances()
# Of each kind one, for where a device is emulated.
FEW = ("tone of 0.47 s", "noise of 0.2 s", "silence", min(n for n in UTTERANCES if ".flac" in n))


class Recorder:
    """Runs a program and keeps what it said, call by call."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.said: list[Mapping[str, np.ndarray]] = []

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One call."""
        self.said.append({name: value.copy() for name, value in self._run(inputs).items()})
        return self.said[-1]


@contextmanager
def converted(programs: Mapping[str, Program], target: str, folder: Path) -> Iterator[Runs]:
    """The artifacts of `listen` and of `emit`, which keeps state."""
    made = convert(programs, target=target, out=folder, measure_seconds=0.0)
    assert [program.state is not None for program in made.manifest.programs] == [False, True]
    with ExitStack() as opened:
        yield {name: opened.enter_context(Session(folder, name, 1)).run for name in programs}


def in_eager(module: torch.nn.Module) -> Run:
    """Runs a module as a session runs its artifact."""

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        with torch.inference_mode():
            return {name: value.numpy() for name, value in module(**given).items()}

    return run


def lead(eager: list[Mapping[str, np.ndarray]], artifact: list[Mapping[str, np.ndarray]]) -> float:
    """By how much eager preferred its first choice that the artifact did not share; 0: none.

    Relative to its largest score.
    """
    for one, other in zip(eager, artifact, strict=False):
        for name in one.keys() & {"logits", "durations"}:
            chosen = other[name].argmax(-1, keepdims=True)
            ahead = one[name].max(-1) - np.take_along_axis(one[name], chosen, -1)[..., 0]
            if ahead.any():
                return float(ahead.max() / np.abs(one[name]).max())
    return 0.0
