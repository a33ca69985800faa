"""Measure the word errors of `spoken_digits` on speech that its training never heard.

    apt-get download asterisk-core-sounds-en-wav && dpkg-deb -x asterisk-core-sounds-en-wav_*.deb .
    python tests/zoo/models/measure_spoken_digits.py usr/share/asterisk/sounds/en_US_f_Allison

The table has a row for each set and head. The runtime transcribes the recordings, long ones window
by window, and eager PyTorch runs the programs: also with weights of a training (`--weights`). The
person is Allison Smith, recorded at 8 kHz (CC-BY-SA-3.0): her eleven digits ("oh" is one) alone,
and 38 strings of six of them, with pauses of up to 0.3 s. The other sets are made of the entry's
held-out recordings; the hour repeats them in new orders.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import numpy as np
import soundfile
import torch
from safetensors.torch import load_file

from menagerie.speech.transcriber import Transcriber
from menagerie.speech.word_errors import distance
from menagerie.typed_json import plain
from transforms.eager import eager_program
from zoo.manifest import OUR_MODELS, load_manifest
from zoo.sources import load
from zoo.speech import TRANSCRIPTS, recipe

sys.path.insert(0, str(Path(__file__).parents[2] / "runtime/speech"))

from level_model import make_levels

if TYPE_CHECKING:
    from collections.abc import Iterator

_RATE, _HOUR = 16_000, 3600
_STRINGS, _DIGITS, _LONGEST_GAP = 38, 6, 2_400  # of the person's digits; the gap in samples


class Said(NamedTuple):
    """A recording, (samples,) float32, and the words that it says."""

    samples: np.ndarray
    words: list[str]
    rate: int = _RATE


@contextmanager
def eager_bundle(weights: Path | None = None) -> Iterator[Path]:
    """Write the entry's bundle, whose programs eager PyTorch runs, with weights of a file."""
    manifest = load_manifest()
    spec, origin = manifest.spec("spoken_digits"), manifest.origins["spoken_digits"].file
    model = load("spoken_digits", spec, origin=origin, random_weights=None, allow_factories=False)
    if weights is not None:
        model.module.load_state_dict(load_file(weights))
    programs = {one.name: eager_program(model.module, one) for one in spec.programs}
    opened = patch.object(Transcriber, "_open", lambda _, __, one, ___: programs[one.name])
    assert spec.speech is not None
    with TemporaryDirectory() as folder, opened:
        yield make_levels(Path(folder) / "bundle", **plain(recipe(spec.speech)))


def sets() -> dict[str, list[Said]]:
    """Return the sets that are made of held-out recordings, by name."""
    folder = OUR_MODELS / "spoken_digits" / "held_out"
    lines = (folder / TRANSCRIPTS).read_text(encoding="utf-8").splitlines()
    alone = [
        Said(soundfile.read(folder / name, dtype="float32")[0], text.split())
        for name, text in (line.split("\t") for line in lines)
    ]
    turns = zip(alone[::2], alone[1::2], strict=True)
    quiet = [one._replace(samples=np.round(one.samples * 3276.8) / 32768) for one in alone[1::2]]
    uneven = zip(alone[::2], quiet, strict=True)
    silence = Said(np.zeros(_RATE // 100, np.float32), [])
    rng, hour = np.random.default_rng(0), list[Said]()
    while sum(len(one.samples) for one in hour) < _HOUR * _RATE:
        hour += [alone[index] for index in rng.permutation(len(alone))]
    return {
        "held out": alone,
        "10 ms of silence before each": [_joined([silence, one]) for one in alone],
        "two by two": [_joined(turn) for turn in turns],
        "the second at a tenth": [_joined(turn) for turn in uneven],
        "all in a row": [_joined(alone)],
        "an hour": [_joined(hour)],
    }


def _person(folder: Path) -> list[Said]:
    rng, digits = np.random.default_rng(0), list[Said]()
    for number, name in enumerate([*map(str, range(10)), "oh"]):
        samples, rate = soundfile.read(folder / "digits" / f"{name}.wav", dtype="float32")
        digits.append(Said(samples, [str(number % 10)], rate))
    strings = []
    for _ in range(_STRINGS):
        gaps = [Said(np.zeros(n, np.float32), []) for n in rng.integers(0, _LONGEST_GAP, _DIGITS)]
        spoken = [digits[n] for n in rng.integers(0, len(digits), _DIGITS)]
        strings.append(_joined([part for pair in zip(spoken, gaps, strict=True) for part in pair]))
    return digits + strings


def _joined(parts: list[Said] | tuple[Said, Said]) -> Said:
    samples, words, rates = zip(*parts, strict=True)
    return Said(np.concatenate(samples), [*chain.from_iterable(words)], rates[0])


def errors(transcriber: Transcriber, recordings: list[Said]) -> int:
    """Count the words that are missed, added or wrong."""
    return sum(
        distance(transcriber.transcribe(one.samples, one.rate).text.split(), one.words)
        for one in recordings
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("person", type=Path, help="folder that holds `digits`")
    parser.add_argument("--weights", type=Path, help="a safetensors file for the committed one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.stdout.write("| set | head | words | errors | % |\n|---|---|---|---|---|\n")
    with eager_bundle(options.weights) as bundle:
        for name, recordings in {"a person": _person(options.person), **sets()}.items():
            words = sum(len(one.words) for one in recordings)
            for head in ("tdt", "ctc"):
                with Transcriber(bundle, head=head, allow_unsigned=True) as transcriber:
                    wrong = errors(transcriber, recordings)
                figures = f"{head.upper()} | {words} | {wrong} | {100 * wrong / words:.1f}"
                sys.stdout.write(f"| {name} | {figures} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
