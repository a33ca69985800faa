"""`menagerie transcribe`, as it is typed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from menagerie.cli import main

sys.path.insert(0, str(Path(__file__).parent))

from level_model import RATE, LevelSession, make_levels, recording


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Two recordings, and a file that is not one."""
    places = {name: tmp_path / name for name in ("one.wav", "two.flac", "bad.wav")}
    soundfile.write(places["one.wav"], recording({3: 1}, 12), RATE)
    soundfile.write(places["two.flac"], recording({2: 2, 6: 3}, 12), RATE)
    places["bad.wav"].write_bytes(b"no sound")
    return places


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["transcribe", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_recording_is_a_line(
    levels: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """And several each have their name before them."""
    assert _run(capsys, levels, files["two.flac"]) == (0, "2 3\n", "")
    both = f"{files['one.wav']}: 1\n{files['two.flac']}: 2 3\n"
    assert _run(capsys, levels, files["one.wav"], files["two.flac"]) == (0, both, "")


def test_run_takes_recordings_too(
    levels: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A recogniser's answer to a file is its text."""
    assert main(["run", str(levels), str(files["two.flac"])]) == 0
    assert capsys.readouterr().out == "2 3\n"


def test_one_that_cannot_be_read_keeps_no_other_from_it(
    levels: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named on standard error, in one line, and the exit code is 1."""
    absent = files["one.wav"].with_name("absent.wav")
    code, out, err = _run(capsys, levels, files["bad.wav"], absent, files["two.flac"])
    assert code == 1
    assert out == f"{files['two.flac']}: 2 3\n"
    assert err.splitlines()[0].startswith(f"{files['bad.wav']}: cannot be read as audio")
    assert err.splitlines()[1:] == [f"{absent}: No such file or directory"]


def test_json_has_every_recording(
    levels: Path, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With its words and their times, or with what was wrong."""
    code, out, _ = _run(capsys, levels, files["one.wav"], files["bad.wav"], "--json")
    one, bad = json.loads(out)["recordings"]
    assert code == 1
    assert (one["audio"], one["text"]) == (str(files["one.wav"]), "1")
    assert one["words"] == [{"text": "1", "start": 0.24, "end": 0.32}]
    assert bad.keys() == {"audio", "error"}


def test_captions_are_written_beside_each_other(
    levels: Path, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file for each recording in the folder that is named."""
    place = tmp_path / "captions"
    both = (files["one.wav"], files["two.flac"])
    assert _run(capsys, levels, *both, "-f", "srt", "-o", place) == (0, "", "")
    assert sorted(path.name for path in place.iterdir()) == ["one.srt", "two.srt"]
    assert place.joinpath("one.srt").read_text() == "1\n00:00:00,240 --> 00:00:00,320\n1\n"


def test_raw_samples_come_through_standard_input(
    levels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a chunk, at the model's rate or another; the text is that of a file."""
    said = {frame: frame % 10 for frame in range(4, 140, 9)}
    samples = np.round(recording(said, 140) * 32767).astype("<i2")
    text = " ".join(str(digit) for digit in said.values()) + "\n"

    class Stdin:
        buffer = io.BytesIO(samples.tobytes())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert _run(capsys, levels, "-", "--chunk", "4") == (0, text, "")
    Stdin.buffer = io.BytesIO(np.repeat(samples, 3).tobytes())
    assert _run(capsys, levels, "-", "--rate", str(3 * RATE)) == (0, text, "")


@pytest.mark.parametrize("form", ["txt", "srt", "vtt", "json"])
def test_what_was_said_is_kept_in_an_encoding_that_lacks_it(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """JSON is read as what it was; in text, what is lacking is escaped: no letter is another's."""
    pieces = [f"\u2581{said}" for said in ("caf\xe9", "5\xb5g", "\u2192")] + ["\u2581x"] * 7
    monkeypatch.setattr("menagerie.speech.transcriber.Session", LevelSession)
    kind = {"kind": "sentencepiece", "pieces": pieces}
    spoken = make_levels(tmp_path / "spoken", vocabulary=kind)
    soundfile.write(files["one.wav"], recording({2: 0, 5: 1, 8: 2}, 12), RATE)
    sheet = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sheet, "ascii"))
    assert main(["transcribe", str(spoken), str(files["one.wav"]), "-f", form]) == 0
    sys.stdout.flush()
    written = sheet.getvalue().decode()
    if form == "json":
        assert json.loads(written)["recordings"][0]["text"] == "caf\xe9 5\xb5g \u2192"
    else:
        assert r"caf\xe9 5\xb5g \u2192" in written.splitlines()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-", "-"], "standard input can be read once"),
        (["a.wav", "--format", "doc"], "there is no format 'doc'. One of txt, srt, vtt, json"),
        (["a.wav", "b.wav", "-f", "srt"], "srt has a file for each recording. Name their folder"),
        (["a.wav", "b/a.flac", "--output", "x"], "two recordings would be written to it"),
    ],
)
def test_misuse_is_reported_before_anything_is_loaded(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2."""
    code, out, err = _run(capsys, tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert says in err
