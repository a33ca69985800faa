"""Strings of spoken digits, said by espeak-ng in many voices."""

from __future__ import annotations

import functools
import io
import re
import shutil
import subprocess
import wave
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import soxr

from zoo.errors import SourceError
from zoo.models.spoken_digits.voices import variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RATE", "Utterance", "say", "utterance"]

RATE = 16_000

_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip
_HEADER = 44  # bytes of a WAV file before its samples
_OH = 0.15  # how often a zero is said "oh"
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
        return Utterance(digits, text, accent, int(speed), int(pitch), variant(rng))
    voice = f"{accent}+{named}" if named else accent
    return Utterance(digits, text, voice, int(speed), int(pitch))


def say(wanted: Utterance) -> NDArray[np.float32]:
    """The speech, (samples,) at 16 kHz with a highest amplitude of 1.

    Raises:
        SourceError: espeak-ng is not installed or lacks the voice.
    """
    program = shutil.which("espeak-ng")
    if program is None:
        raise SourceError("espeak-ng", "is not installed", "apt-get install espeak-ng")
    command = [program, "-s", str(wanted.speed), "-p", str(wanted.pitch), "--stdout"]
    voice = wanted.voice
    with TemporaryDirectory() as folder:
        if wanted.made:
            _add_variant(program, Path(folder), wanted.made)
            command.append(f"--path={folder}")
            voice += "+chance"
        command += ["-v", voice, wanted.text]
        done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or len(done.stdout) <= _HEADER:
        raise SourceError("espeak-ng", f"does not say {wanted}: {done.stderr.decode()}")
    with wave.open(io.BytesIO(done.stdout)) as stream:
        rate = stream.getframerate()
    spoken = np.frombuffer(done.stdout[_HEADER:], np.int16).astype(
        np.float32
    )  # the header's size lies
    heard: NDArray[np.float32] = soxr.resample(spoken, rate, RATE)
    return heard / max(float(np.abs(heard).max()), 1.0)


@functools.cache
def _data(program: str) -> Path:
    """Where espeak-ng keeps its voices; it says so after its version."""
    told = subprocess.run([program, "--version"], capture_output=True, check=False, text=True)
    found = re.search("Data at: *(.+)", told.stdout)
    if found is None:
        raise SourceError("espeak-ng", "does not say where its data are", "install espeak-ng 1.51")
    return Path(found[1].strip())


def _add_variant(program: str, folder: Path, made: str) -> None:
    """Make `folder` espeak-ng's data with one variant, `chance`."""
    ours = folder / "espeak-ng-data"
    (ours / "voices" / "!v").mkdir(parents=True)
    (ours / "voices" / "!v" / "chance").write_text(made)
    for name in ("phondata", "phonindex", "phontab", "intonations", "en_dict", "lang"):
        (ours / name).symlink_to(_data(program) / name)
