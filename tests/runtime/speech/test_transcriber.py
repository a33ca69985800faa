"""Recordings of any length to text with times, by a model that hears levels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from menagerie.errors import ArtifactError, SpeechError
from menagerie.format.folder import open_bundle, seal
from menagerie.speech import Token, Transcriber, Word

sys.path.insert(0, str(Path(__file__).parent))

from level_model import FRAME, HIGH, RATE, make_levels, recording


@pytest.mark.parametrize("head", ["ctc", "tdt"])
def test_text_words_and_tokens_with_their_times(levels: Path, head: str) -> None:
    """A frame is 80 ms; what is said at frame 3 is said from 0.24 to 0.32 s."""
    with Transcriber(levels, head=head) as transcriber:
        found = transcriber.transcribe(recording({3: 7, 5: 0, 9: 0}, 12), RATE)
    assert found.text == "7 0 0"
    assert found.tokens[0] == Token(7, " 7", 0.24, 0.32)
    assert found.words == (Word("7", 0.24, 0.32), Word("0", 0.4, 0.48), Word("0", 0.72, 0.8))
    assert found.duration == pytest.approx(0.96)


@pytest.mark.parametrize("head", ["ctc", "tdt"])
@pytest.mark.parametrize("frames", [100, 101, 180, 181, 750])
def test_a_recording_longer_than_the_model_takes_is_heard_whole(
    levels: Path, heard: list[int], head: str, frames: int
) -> None:
    """Nothing lost, nothing twice, every time right, and never more at once than the model takes."""
    rng = np.random.default_rng(frames)
    at = np.flatnonzero(rng.random(frames) < 0.3)[::2]  # few side by side
    said = {int(frame): int(rng.integers(10)) for frame in at}
    with Transcriber(levels, head=head) as transcriber:
        found = transcriber.transcribe(recording(said, frames), RATE)
    starts = {round(token.start * RATE / FRAME): token.id for token in found.tokens}
    alike = {f for f in said if said.get(f - 1) == said[f] and head == "ctc"}  # one to CTC
    assert starts == {frame: digit for frame, digit in said.items() if frame not in alike}
    assert len(found.tokens) == len(starts)
    assert max(heard) == HIGH
    assert len(heard) == (1 if frames <= 100 else -(-(frames - 20) // 80))


def test_a_model_of_one_language_takes_none(levels: Path) -> None:
    """Rather than to transcribe as another language than was given."""
    with pytest.raises(
        SpeechError, match=r"does not support language 'en'\. Leave the language out"
    ):
        Transcriber(levels, language="en")


@pytest.mark.parametrize("samples", [1, 160, 1279, 1281, 3200])
def test_the_shortest_recording_is_heard(levels: Path, heard: list[int], samples: int) -> None:
    """It is padded to the least that the model takes."""
    with Transcriber(levels) as transcriber:
        found = transcriber.transcribe(np.zeros(samples, np.float32), RATE)
    assert found.text == ""
    assert found.duration == samples / RATE
    assert heard == [max(2, -(-samples // FRAME)) * FRAME]


def test_a_shorter_chunk_is_heard_sooner(levels: Path, heard: list[int]) -> None:
    """The same text; what is certain is reported chunk by chunk."""
    said = {frame: frame % 10 for frame in range(5, 200, 7)}
    with Transcriber(levels, chunk=4.0) as transcriber:
        found = transcriber.transcribe(recording(said, 200), RATE)
    assert [token.id for token in found.tokens] == list(said.values())
    assert max(heard) == 4 * RATE


@pytest.mark.parametrize("chunk", [0.0, 3.2, 8.1, -1.0])
def test_a_chunk_that_cannot_be_is_refused(levels: Path, chunk: float) -> None:
    """No longer than the model takes, and longer than two overlaps."""
    with pytest.raises(SpeechError, match=r"^levels: .* at once\. More than 3\.2 s and at most 8"):
        Transcriber(levels, chunk=chunk)


def test_channels_and_rates_are_brought_to_the_models(levels: Path, tmp_path: Path) -> None:
    """A stereo file of 24 bits at 48 kHz, in which one channel is silent."""
    loud = np.repeat(recording({4: 4, 5: 4, 6: 4, 7: 4}, 12), 3) * 2
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([loud, 0 * loud], axis=1), 3 * RATE, subtype="PCM_24")
    steps: list[tuple[float, float | None]] = []
    with Transcriber(levels) as transcriber:
        found = transcriber.transcribe_file(path, lambda done, of: steps.append((done, of)))
    assert found.text == "4"
    assert steps[-1] == (pytest.approx(0.96), pytest.approx(0.96))


def test_what_is_no_recording_is_refused(levels: Path) -> None:
    """Without a sample, with one that is no number, at no rate, of no type."""
    with Transcriber(levels) as transcriber:
        with pytest.raises(SpeechError, match="holds no sample"):
            transcriber.transcribe(np.empty(0, np.float32), RATE)
        with pytest.raises(SpeechError, match=r"sample 1, at 0\.00 s, is not finite"):
            transcriber.transcribe(np.array([0.0, np.inf], np.float32), RATE)
        with pytest.raises(SpeechError, match="a rate of 0 Hz"):
            transcriber.transcribe(np.zeros(9, np.float32), 0)
        with pytest.raises(SpeechError, match="samples of type complex128"):
            transcriber.transcribe(np.zeros(9, complex), RATE)


def test_a_head_that_is_not_there_is_refused(levels: Path) -> None:
    """By name, with those that are."""
    with pytest.raises(SpeechError, match=r"has no head 'rnnt'\. It has: ctc, tdt"):
        Transcriber(levels, head="rnnt")


def test_a_recipe_for_other_programs_is_refused(tmp_path: Path) -> None:
    """Before any is loaded."""
    heads = {"ctc": {"kind": "ctc", "listen": "hear", "blank": 10}}
    with pytest.raises(ArtifactError, match=r"heads\.ctc: there is no program 'hear'"):
        Transcriber(make_levels(tmp_path / "a", heads=heads))


@pytest.mark.parametrize("rate", [0, 999, 768_001, 10**15])
def test_a_recipe_at_no_rate_of_recordings_is_refused(tmp_path: Path, rate: int) -> None:
    """Else the blocks that a recording is resampled to would have no bound."""
    bundle = make_levels(tmp_path / "a")
    manifest, path = open_bundle(bundle).manifest, bundle / "speech.json"
    path.write_text(path.read_text().replace("16000", str(rate)))
    seal(bundle, manifest)
    with pytest.raises(ArtifactError, match=r"speech\.json: .*rate"):
        Transcriber(bundle)


def test_a_bundle_without_a_recipe_does_not_understand_speech(tmp_path: Path) -> None:
    """It is a sound bundle all the same."""
    from bundle_maker import make_bundle

    with pytest.raises(SpeechError, match="tiny: does not understand speech"):
        Transcriber(make_bundle(tmp_path / "bundle"))


def test_transcribing_imports_numpy_and_nothing_heavy() -> None:
    """Neither torch nor transformers, and of audio only what a file needs, when it does."""
    code = (
        "import sys, menagerie.speech.command, menagerie.speech.transcriber\n"
        "print(*sorted({'torch', 'transformers', 'soundfile', 'soxr', 'tokenizers', 'pydantic'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
