"""Recordings good and bad: read right, or refused in one clear sentence."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from menagerie.errors import SpeechError
from menagerie.speech.audio import Recording, at_rate, open_audio, raw_audio, sound

if TYPE_CHECKING:
    from pathlib import Path

_RATE = 16_000


def _tone(rate: int = _RATE, seconds: float = 2.5, hertz: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def _read(path: Path, rate: int = _RATE) -> np.ndarray:
    with open_audio(path) as recording:
        return np.concatenate([np.empty(0, np.float32), *at_rate(recording, rate)])


@pytest.mark.parametrize(
    ("name", "subtype", "within"),
    [
        ("a.wav", "PCM_U8", 1 / 128),
        ("a.wav", "PCM_16", 1 / 32768),
        ("a.wav", "PCM_24", 1 / 2**23),
        ("a.wav", "PCM_32", 1e-6),
        ("a.wav", "FLOAT", 1e-7),
        ("a.flac", "PCM_16", 1 / 32768),
        ("a.flac", "PCM_24", 1 / 2**23),
        ("a.ogg", "VORBIS", 0.05),
        ("a.mp3", "MPEG_LAYER_III", 0.05),
    ],
)
def test_every_format_gives_the_samples_that_were_written(
    tmp_path: Path, name: str, subtype: str, within: float
) -> None:
    """As exactly as the format keeps them."""
    path, written = tmp_path / name, _tone()
    soundfile.write(path, written, _RATE, subtype=subtype)
    found = _read(path)[: len(written)]
    assert found.dtype == np.float32
    inside = slice(2000, len(written) - 2000)  # lossy formats ring at both ends
    assert np.abs(found[inside] - written[inside]).max() <= within


def test_channels_are_folded_into_their_mean(tmp_path: Path) -> None:
    """Of two, and of six."""
    path, tone = tmp_path / "a.wav", _tone()
    for others in (1, 5):
        channels = np.stack([tone, *[np.zeros_like(tone)] * others], axis=1)
        soundfile.write(path, channels, _RATE, subtype="FLOAT")
        assert np.allclose(_read(path), tone / (others + 1), atol=1e-6)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000, 96_000])
def test_any_rate_is_brought_to_the_models(tmp_path: Path, rate: int) -> None:
    """The tone is the same tone, as long, whatever blocks it was read in."""
    path = tmp_path / "a.wav"
    soundfile.write(path, _tone(rate), rate, subtype="FLOAT")
    found, wanted = _read(path), _tone()
    assert len(found) == len(wanted)
    assert np.abs(found[1000:-1000] - wanted[1000:-1000]).max() < 1e-3


def test_an_offset_and_clipping_are_sound_all_the_same(tmp_path: Path) -> None:
    """A recording that is too loud or off its middle is read as it is."""
    path, loud = tmp_path / "a.wav", np.clip(4 * _tone() + 0.25, -1.0, 1.0)
    soundfile.write(path, loud, _RATE, subtype="FLOAT")
    assert np.allclose(_read(path), loud, atol=1e-6)


def test_samples_that_are_not_numbers_are_refused_with_their_moment(tmp_path: Path) -> None:
    """In whichever block they are."""
    path, tone = tmp_path / "a.wav", _tone()
    tone[24_000] = np.nan
    soundfile.write(path, tone, _RATE, subtype="FLOAT")
    with pytest.raises(SpeechError, match=r"a\.wav: sample 24000, at 1\.50 s, is not finite"):
        _read(path)


def test_a_file_without_a_sample_is_refused(tmp_path: Path) -> None:
    """No byte at all, or a header alone."""
    path = tmp_path / "a.wav"
    path.touch()
    with pytest.raises(SpeechError, match=r"a\.wav: is empty"):
        _read(path)
    soundfile.write(path, np.empty(0), _RATE)
    with pytest.raises(SpeechError, match=r"a\.wav: holds no sample"):
        _read(path)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """A text is no recording, whatever its name says."""
    path = tmp_path / "a.wav"
    path.write_text("three five nine\n" * 100)
    with pytest.raises(SpeechError, match=r"a\.wav: cannot be read as audio \(.*\)\. Give WAV"):
        _read(path)


@pytest.mark.parametrize("kept", [4, 12, 20, 36])
def test_a_truncated_header_is_refused(tmp_path: Path, kept: int) -> None:
    """Wherever it ends."""
    path = tmp_path / "a.wav"
    soundfile.write(path, _tone(), _RATE)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(SpeechError, match="cannot be read as audio"):
        _read(path)


def test_a_recording_that_broke_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Its header says more than there is."""
    path, tone = tmp_path / "a.wav", _tone()
    soundfile.write(path, tone, _RATE)
    path.write_bytes(path.read_bytes()[: 44 + 2 * 10_000])
    assert np.allclose(_read(path), tone[:10_000], atol=1e-4)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    """As of any other file."""
    with pytest.raises(FileNotFoundError):
        _read(tmp_path / "a.wav")


@pytest.mark.parametrize("size", [1, 2, 3, 4096])
def test_raw_samples_come_in_pieces_of_any_size(size: int) -> None:
    """A pipe breaks where it will, between the bytes of a sample too; half a one is left out."""

    class Pipe(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            return super().read(min(count or -1, size))

    written = np.arange(-500, 500, dtype="<i2")
    recording = raw_audio(Pipe(written.tobytes() + b"\x01"), _RATE)
    assert recording.seconds is None
    found = np.concatenate(list(recording.blocks))
    assert (found * 32768).tolist() == written.tolist()


@pytest.mark.parametrize(
    ("samples", "value"),
    [
        (np.array([192], np.uint8), 0.5),
        (np.array([-64], np.int8), -0.5),
        (np.array([-32768], np.int16), -1.0),
        (np.array([2**30], np.int32), 0.5),
        (np.array([0.25], np.float64), 0.25),
        (np.array([[0.5, -0.25]], np.float16), 0.125),
    ],
)
def test_samples_of_any_type_are_between_minus_one_and_one(
    samples: np.ndarray, value: float
) -> None:
    """As WAV files have those types."""
    assert sound("here", samples, _RATE).tolist() == [value]


@pytest.mark.parametrize(
    "samples", [np.array([True]), np.array(["x"]), np.array([1j]), np.array(1.0), np.ones((1, 0))]
)
def test_what_is_no_sound_is_refused(samples: np.ndarray) -> None:
    """Another type, or another shape than samples by channels."""
    with pytest.raises(SpeechError, match="samples of"):
        sound("here", samples, _RATE)


@pytest.mark.parametrize("rate", [0, -16_000, 999, 10**6])
def test_a_rate_at_which_nothing_is_recorded_is_refused(rate: int) -> None:
    """Before a sample is read."""
    with pytest.raises(SpeechError, match="a rate of"):
        raw_audio(io.BytesIO(), rate)


@pytest.mark.parametrize("name", ["soundfile", "soxr"])
def test_a_missing_library_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install; a recording at the model's own rate takes no resampling."""
    monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF")
    slow = Recording("a", 8_000, None, [np.zeros(8, np.float32)])
    reading = {"soundfile": lambda: _read(path), "soxr": lambda: list(at_rate(slow, _RATE))}
    with pytest.raises(SpeechError, match=f"{name}, which .* Install the extra `speech`"):
        reading[name]()
    assert list(at_rate(Recording("a", _RATE, None, []), _RATE)) == []
