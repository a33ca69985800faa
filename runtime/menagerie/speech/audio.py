"""Readers of recordings for models: one channel, float32, at the model's own sample rate.

soundfile reads the files (WAV, FLAC, Ogg, MP3 and others) and soxr resamples them, block by block,
so that hours of audio need the memory of seconds. Both come with the extra `speech`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from menagerie.errors import SpeechError
from menagerie.speech.recipe import HIGHEST_RATE, LOWEST_RATE

Samples = NDArray[np.float32]
_BLOCK_SECONDS = 1.0
_INSTALL = "Install the extra `speech` of menagerie, or soundfile and soxr by themselves"


@dataclass(frozen=True)
class Recording:
    """A recording that is read one block at a time."""

    place: str  # its name, for messages
    rate: int  # samples per second
    seconds: float | None  # the length that the file states; None if unknown, as for a pipe
    # (samples,) float32 in order, with channels averaged; can be iterated over once
    blocks: Iterable[Samples]


def sound(place: str, samples: np.ndarray, rate: int, before: int = 0) -> Samples:
    """Return samples as one channel of float32 between -1 and 1.

    The samples are (n,) or (n, channels); channels are averaged. They are floats between -1 and 1,
    signed integers that span the range of their type, or uint8 centred on 128, as in WAV files.
    Error messages name `place` and the time, computed from `rate` and the number of samples
    `before`. Raise SpeechError for any other type or shape, and for a sample that is not finite.
    """
    if samples.ndim not in {1, 2} or not all(samples.shape[1:]):
        fact = f"samples of shape {list(samples.shape)}"
        raise SpeechError(place, fact, "Give (samples,) or (samples, channels)")
    if samples.dtype == np.uint8:
        samples = (samples.astype(np.float32) - 128.0) / 128.0
    elif samples.dtype.kind == "i":
        samples = samples.astype(np.float64) / -float(np.iinfo(samples.dtype).min)
    elif samples.dtype.kind != "f":
        fact = f"samples of type {samples.dtype}"
        raise SpeechError(place, fact, "Give floats from -1 to 1, or signed integers")
    if not np.isfinite(samples).all():
        finite = np.isfinite(samples.T).reshape(-1, len(samples)).all(axis=0)
        first = before + int(np.argmin(finite))
        fact = f"sample {first}, at {first / rate:.2f} s, is not finite"
        raise SpeechError(place, fact, "Write the recording again: it holds NaN or infinity")
    mono = samples.mean(axis=1) if samples.shape[1:] else samples
    return np.ascontiguousarray(mono, np.float32)


@contextmanager
def open_audio(path: Path) -> Iterator[Recording]:
    """Open an audio file of any format that libsndfile supports.

    Raise OSError if it cannot be opened, SpeechError if it is not an audio file, holds no sample or
    an unreadable block, or soundfile is not installed.
    """
    place = str(path)
    soundfile = _library("soundfile", place)
    with path.open("rb") as stream:
        if not stream.read(1):
            raise SpeechError(place, "is empty", "Record it again")
        stream.seek(0)
        try:
            file = soundfile.SoundFile(stream)
            # soundfile seeks after every read of a seekable file, which confuses an MP3 decoder.
            file.seekable = lambda: False
        except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
            raise _unreadable(place, error) from error
        with file:
            rate, frames = int(file.samplerate), int(file.frames)
            require_rate(place, rate)
            # A pipe's writer does not know the length, so the header holds the largest number.
            known = 0 < frames < 2**31 - 1
            blocks = _read(place, file, soundfile.LibsndfileError)
            yield Recording(place, rate, frames / rate if known else None, blocks)


def raw_audio(stream: BinaryIO, rate: int, place: str = "standard input") -> Recording:
    """Read signed 16-bit little-endian samples of one channel from a stream until it ends.

    Ignore half a sample at the end. Raise SpeechError if `rate`, in samples per second, is not
    plausible.
    """
    require_rate(place, rate)
    return Recording(place, rate, None, _read_raw(stream, rate, place))


def at_rate(recording: Recording, rate: int) -> Iterator[Samples]:
    """Resample the blocks with soxr's high quality; raise SpeechError if soxr is missing."""
    if recording.rate == rate:
        yield from recording.blocks
        return
    soxr = _library("soxr", recording.place)
    stream = soxr.ResampleStream(recording.rate, rate, 1, dtype="float32")
    for block in recording.blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.empty(0, np.float32), last=True)


def _library(name: str, place: str) -> Any:
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # soundfile raises OSError if libsndfile is missing
        fact = f"{name}, which it takes to read this, is not usable ({error})"
        raise SpeechError(place, fact, _INSTALL) from error


def require_rate(place: str, rate: int) -> None:
    """Raise SpeechError if `rate` is not a plausible sample rate."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        fact = f"a rate of {rate} Hz, not {LOWEST_RATE:,} to {HIGHEST_RATE:,}"
        raise SpeechError(place, fact, "Say at which rate it was recorded")


def _read(place: str, file: Any, failure: type[Exception]) -> Iterator[Samples]:
    before = 0
    while True:
        try:
            block = file.read(int(file.samplerate * _BLOCK_SECONDS), "float32", always_2d=True)
        except (failure, RuntimeError) as error:
            raise _unreadable(place, error) from error
        if not len(block):
            break
        yield sound(place, block, file.samplerate, before)
        before += len(block)
    if not before:
        raise SpeechError(place, "holds no sample", "Record it again")


def _read_raw(stream: BinaryIO, rate: int, place: str) -> Iterator[Samples]:
    held = b""
    while block := stream.read(int(rate * _BLOCK_SECONDS) * 2):
        held += block
        whole = len(held) // 2 * 2
        yield sound(place, np.frombuffer(held[:whole], "<i2"), rate)
        held = held[whole:]


def _unreadable(place: str, error: Exception) -> SpeechError:
    fact = f"cannot be read as audio ({str(error).strip().rstrip('.').split(': ')[-1]})"
    return SpeechError(place, fact, "Give WAV, FLAC, Ogg or MP3; for raw samples, `-`")
