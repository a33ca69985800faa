"""Strings of digits, said by espeak-ng 1.51 in its voices, and in voices that nobody has.

Its own variants are some hundred, and a model that hears those alone knows them by heart instead of
learning what a digit sounds like. A variant is a text file, so there may be as many as utterances.
The properties and their units: https://github.com/espeak-ng/espeak-ng/blob/1.51/docs/voices.md.
"""

from __future__ import annotations

import functools
import io
import math
import subprocess
import wave
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import soxr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["RATE", "Utterance", "say", "utterance"]

RATE = 16_000

_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
_HEADER = 44  # bytes of a WAV file before its samples
_OH = 0.35  # how often a zero is said "oh"; 0.15 of the held-out recordings
_PAUSES = (" ", " ", " ", ", ", ". ")  # what may follow a word of a string ...
_PAUSED = 0.5  # ... and how often it does
_ACCENTS = (
    "en-gb", "en-us", "en-gb-scotland", "en-gb-x-gbclan", "en-gb-x-rp", "en-029", "en-us-nyc",
)  # fmt: skip
_VARIANTS = (
    "", "adam", "Alex", "Andrea", "Annie", "antonio", "aunty", "benjamin", "boris", "caleb",
    "David", "Denis", "Diogo", "ed", "edward", "edward2", "Gene", "Gene2", "grandma", "grandpa",
    "Gustave", "Henrique", "iven", "iven2", "iven3", "iven4", "Jacky", "john", "kaukovalta",
    "klatt", "klatt2", "klatt4", "klatt6", "Lee", "linda", "Marco", "Mario", "max", "michel",
    "Miguel", "mike", "Mr serious", "Nguyen", "norbert", "pablo", "paul", "pedro", "quincy",
    "RicishayMax", "RicishayMax2", "rob", "robert", "sandro", "shelby", "steph", "steph2", "travis",
    "Tweaky", "anika", "f1", "f2", "f4", "m1", "m2", "m3", "m5", "m6", "m8", "whisper", "croak",
)  # fmt: skip
_MADE = 0.7  # how often the voice is of our own making
# Voices that the training never hears, and an accent that it never hears.
_OTHER_ACCENTS = (*_ACCENTS, "en-gb-x-gbcwmd", "en-gb-x-gbcwmd")
_OTHER_VARIANTS = (
    "Alicia", "Andy", "belinda", "f3", "f5", "Hugo", "m4", "m7", "marcelo", "michael", "Storm",
    "steph3", "victor", "zac",
)  # fmt: skip

_TRACT = (0.7, 1.5)  # how far all formants move together, as with the length of a throat ...
_OWN = 0.13  # ... and the deviation of each one's own place, as a logarithm
_FORMANTS = 9
_AUDIBLE = 4  # of them make the vowel; those above only colour it and may be missing
_PITCH = (55.0, 260.0)  # Hz
_STRESSES = 8  # classes of syllables by stress
_SYNTHESISERS = 6  # Klatt's, beside the usual one

# How often a voice has a property.
_KLATT, _TONE, _ECHO, _BREATH, _FLUTTER, _ROUGH, _STRESS, _MISSING = (
    0.12, 0.5, 0.15, 0.15, 0.6, 0.3, 0.3, 0.3,
)  # fmt: skip


class Utterance(NamedTuple):
    """What is said and how.

    Attributes:
        digits: what the recording says, each from 0 to 9.
        text: what espeak-ng is given.
        voice: its voice.
        speed: words a minute.
        pitch: 0 to 99.
        made: the text of a variant that espeak-ng does not have; `voice` is then an accent alone.
    """

    digits: tuple[int, ...]
    text: str
    voice: str
    speed: int
    pitch: int
    made: str = ""


def utterance(rng: np.random.Generator, longest: int, *, held_out: bool = False) -> Utterance:
    """A random string of 1 to `longest` digits for a random voice.

    Args:
        rng: where chance comes from.
        longest: how many digits at most; short strings are as likely as long ones.
        held_out: whether the voice is one of those kept for measuring. Of the others most are made
            by chance.
    """
    digits = tuple(int(digit) for digit in rng.integers(0, 10, rng.integers(1, longest + 1)))
    accents, variants = (_OTHER_ACCENTS, _OTHER_VARIANTS) if held_out else (_ACCENTS, _VARIANTS)
    accent, named = str(rng.choice(accents)), str(rng.choice(variants))
    pause = _PAUSES[rng.integers(len(_PAUSES))]
    words = ["oh" if digit == 0 and rng.random() < _OH else _WORDS[digit] for digit in digits]
    groups = [word + (pause if rng.random() < _PAUSED else " ") for word in words]
    text, speed, pitch = "".join(groups).strip(), rng.integers(110, 230), rng.integers(15, 90)
    if not held_out and rng.random() < _MADE:
        return Utterance(digits, text, accent, int(speed), int(pitch), _variant(rng))
    voice = f"{accent}+{named}" if named else accent
    return Utterance(digits, text, voice, int(speed), int(pitch))


def say(wanted: Utterance) -> NDArray[np.float32]:
    """The speech, (samples,) at 16 kHz with a highest amplitude of 1."""
    command = ["espeak-ng", "-s", str(wanted.speed), "-p", str(wanted.pitch), "--stdout"]
    voice = wanted.voice
    with TemporaryDirectory() as folder:
        if wanted.made:
            _add_variant(Path(folder), wanted.made)
            command.append(f"--path={folder}")
            voice += "+chance"
        command += ["-v", voice, wanted.text]
        done = subprocess.run(command, capture_output=True, check=True)
    with wave.open(io.BytesIO(done.stdout)) as stream:
        rate = stream.getframerate()
    spoken = np.frombuffer(done.stdout[_HEADER:], np.int16)  # the header's size lies
    heard: NDArray[np.float32] = soxr.resample(spoken.astype(np.float32), rate, RATE)
    return heard / max(float(np.abs(heard).max()), 1.0)


@functools.cache
def _data() -> Path:
    """Where espeak-ng keeps its voices; it says so after its version."""
    told = subprocess.run(["espeak-ng", "--version"], capture_output=True, check=True, text=True)  # noqa: S607
    return Path(told.stdout.partition("Data at:")[2].strip())


def _add_variant(folder: Path, made: str) -> None:
    """Make `folder` espeak-ng's data with one variant, `chance`."""
    ours = folder / "espeak-ng-data"
    (ours / "voices" / "!v").mkdir(parents=True)
    (ours / "voices" / "!v" / "chance").write_text(made)
    for name in ("phondata", "phonindex", "phontab", "intonations", "en_dict", "lang"):
        (ours / name).symlink_to(_data() / name)


def _variant(rng: np.random.Generator) -> str:
    """The text of a variant's file, as espeak-ng reads it after a `+`."""
    return "\n".join([*_throat(rng), *_manner(rng)]) + "\n"


def _throat(rng: np.random.Generator) -> Iterator[str]:
    """Pitch and formants: who speaks."""
    yield "language variant"
    yield "name chance"
    pitch = _between(rng, *_PITCH)
    yield f"pitch {pitch} {_between(rng, 1.1 * pitch, 2 * pitch)}"
    tract = _between(rng, 100 * _TRACT[0], 100 * _TRACT[1])
    for formant in range(_FORMANTS):
        place = round(tract * math.exp(rng.normal(0.0, _OWN)))
        strength, width = _between(rng, 50, 170), _between(rng, 40, 170)
        if formant >= _AUDIBLE and rng.random() < _MISSING:
            strength = 0
        yield f"formant {formant} {place} {strength} {width}"


def _manner(rng: np.random.Generator) -> Iterator[str]:
    """How: loud or soft consonants, melody, breath, echo."""
    yield f"voicing {_between(rng, 30, 230)}"
    yield f"consonants {_between(rng, 25, 200)} {_between(rng, 30, 250)}"
    yield f"intonation {rng.integers(1, 5)}"
    if rng.random() < _KLATT:
        yield f"klatt {rng.integers(1, _SYNTHESISERS + 1)}"
    if rng.random() < _TONE:
        corners = sorted(_between(rng, 60, 5000) for _ in range(4))
        yield "tone " + " ".join(f"{hertz} {_between(rng, 20, 255)}" for hertz in corners)
    if rng.random() < _ECHO:
        yield f"echo {_between(rng, 10, 200)} {_between(rng, 5, 80)}"
    if rng.random() < _BREATH:
        yield "breath " + " ".join(str(_between(rng, 1, 40)) for _ in range(_STRESSES))
        yield "breathw 150 150 200 200 400 400"
    if rng.random() < _FLUTTER:
        yield f"flutter {_between(rng, 1, 20)}"
    if rng.random() < _ROUGH:
        yield f"roughness {rng.integers(1, 7)}"
    if rng.random() < _STRESS:
        yield "stressAdd " + " ".join(str(rng.integers(-40, 200)) for _ in range(_STRESSES))
        yield "stressAmp " + " ".join(str(_between(rng, 12, 36)) for _ in range(_STRESSES))


def _between(rng: np.random.Generator, low: float, high: float) -> int:
    """As likely half as double: uniform in its logarithm."""
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
