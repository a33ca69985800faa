"""An entry that names steps, a use and a gate of packages: converted, proven, used on files."""

from __future__ import annotations

import hashlib
import json
import struct
import wave
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image
from real_jobs import converted, planned_job
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from menagerie.boxes import find_boxes
from menagerie.cli import main
from menagerie.steps import blocks, read_picture
from menagerie.uses import BoxesHead
from menagerie.validation.findings import Verdict
from tasks.model_stages import ModelStages
from tasks.stage_table import PULL
from zoo.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray


_COLOURS = {"red": (250, 10, 10), "green": (10, 250, 10), "blue": (10, 10, 250)}
_PIECES = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "cat": 3, "dog": 4, "##s": 5, "[MASK]": 6}
_BLOCK = 80  # samples: 10 ms at 8 kHz
_NETS = """
import torch

class Colours(torch.nn.Module):
    def forward(self, picture):
        return picture.mean((2, 3)) * 8

class Loudness(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.zeros(1, 1))

    def forward(self, samples):
        self.level.copy_(0.5 * self.level + samples.abs().mean(1, keepdim=True))
        return torch.tanh(self.level * 4)

class Ink(torch.nn.Module):
    def forward(self, picture):
        dark = 128 - picture.float().mean((1, 3))
        return torch.stack([-dark, dark], -1)

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(7, 2)

    def forward(self, tokens):
        return torch.nn.functional.normalize(self.table(tokens).mean(1), dim=-1)
"""


def _tone(path: Path, spans: list[tuple[float, float]], seconds: float) -> None:
    """A WAV file at 8 kHz that is loud in spans of seconds, else silent."""
    times = np.arange(int(seconds * 8000)) / 8000
    loud = np.any([(low <= times) & (times < high) for low, high in spans], axis=0)
    samples = (np.where(np.arange(len(times)) % 2, 1, -1) * 16000 * loud).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(struct.pack(f"<{len(samples)}h", *samples.tolist()))


def _wheel(folder: Path, files: list[Path]) -> dict[str, str]:
    """A wheel with these files; what an entry says of it."""
    wheel = folder / "example_data-1.0-py3-none-any.whl"
    info = "example_data-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: example-data\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for file in files:
            archive.write(file, file.name)
    return {"distribution": "example-data", "version": "1.0", "wheel_sha256": _digest(wheel)}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two entries whose gates' data are in a wheel of a local index, which is asked once."""
    data, folder = tmp_path / "index", tmp_path / "manifest"
    data.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(data))
    for name, colour in _COLOURS.items():
        Image.new("RGB", (70, 50), colour).save(data / f"{name}.png")
    _tone(data / "talk.wav", [(0.2, 0.6)], 1.0)
    (data / "talk.rttm").write_text("SPEAKER talk 1 0.200 0.400 <NA> <NA> somebody <NA> <NA>\n")
    words = WordPiece(_PIECES, unk_token="[UNK]")  # noqa: S106
    Tokenizer(words).save(str(data / "tokenizer.json"))
    table = torch.zeros(7, 2)
    table[_PIECES["cat"], 0] = table[_PIECES["dog"], 1] = table[_PIECES["[MASK]"], 1] = 1.0
    save_file({"table.weight": table}, data / "words.safetensors")
    files = {path.name: {"file": path.name, "sha256": _digest(path)} for path in data.iterdir()}
    package = _wheel(data, [data / name for name in files])
    pictures = [files[f"{name}.png"] | {"label": n} for n, name in enumerate(_COLOURS)]
    (folder / "nets.py").write_text(_NETS)
    (folder / "labels.txt").write_text("\n".join(_COLOURS))
    entry = {"licence": {"spdx": "Apache-2.0"}, "targets": ["cpu"]}
    picture = {
        "name": "picture",
        "shape": [1, "height", "width", 3],
        "dtype": "uint8",
        "sample": {"kind": "integers", "low": 0, "high": 256},
    }
    fit = {"kind": "fit", "size": 8, "share": 0.5}
    normalise = {"kind": "normalise", "mean": [128.0], "deviation": [128.0, 128.0, 128.0]}
    models = {
        "colours": entry | {
            "summary": "The colour of a picture",
            "source": {"kind": "factory", "builder": "nets:Colours"},
            "programs": [{
                "inputs": [picture],
                "before": {"picture": [fit, normalise]},
                "outputs": ["probabilities"],
                "after": {"probabilities": [{"kind": "softmax"}]},
                "dimensions": {n: {"low": 16, "high": 64} for n in ("height", "width")},
            }],
            "accuracy": {
                "batch": 1,
                "pictures": {"side": 32, "packages": [package | {"pictures": pictures}]},
            },
            "use": {"kind": "labels", "labels": "labels.txt", "square": True},
        },
        "loudness": entry | {
            "summary": "Whether it is loud",
            "source": {"kind": "factory", "builder": "nets:Loudness"},
            "programs": [{
                "inputs": [{"name": "samples", "shape": [1, _BLOCK], "sample": {"std": 0.1}}],
                "outputs": ["probability"],
            }],
            "accuracy": {
                "batch": 1,
                "recording": {
                    "package": package,
                    "sound": files["talk.wav"],
                    "speakers": files["talk.rttm"],
                    "block": _BLOCK,
                },
            },
            "use": {"kind": "stretches", "programs": {"main": 8000}, "least": 0.1, "pause": 0.05},
        },
        "ink": entry | {
            "summary": "A stroke for each dark place of a line",
            "source": {"kind": "factory", "builder": "nets:Ink"},
            "programs": [{
                "inputs": [picture | {"shape": [1, 4, "width", 3]}],
                "outputs": ["logits"],
                "dimensions": {"width": {"low": 8, "high": 64}},
            }],
            "use": {"kind": "text", "alphabet": "|"},
        },
        "words": entry | {
            "summary": "Which words a sentence has",
            "source": package | {
                "kind": "package",
                "builder": "nets:Words",
                "weights": [files["words.safetensors"]],
                "beside": [files["tokenizer.json"]],
            },
            "programs": [{
                "inputs": [{
                    "name": "tokens",
                    "shape": [1, "count"],
                    "dtype": "int64",
                    "sample": {"kind": "integers", "low": 3, "high": 5},
                }],
                "outputs": ["embedding"],
                "dimensions": {"count": {"low": 3, "high": 8}},
            }],
            "use": {"kind": "similarity", "numbered": 7},
        },
    }  # fmt: skip
    text = json.dumps({"version": 1, "family": "Trained", "models": models})
    (folder / "models.yaml").write_text(text)
    return folder


def test_a_picture_becomes_labels(
    manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Resizing, normalising and softmax are in the program; labels are in the bundle.

    Each mean is (value - 128) / 128 * 8: 7.625 and twice -7.375 give exp(15) to 2 and so 1.00.
    """
    bundle, report = converted(manifest, "colours", tmp_path)
    assert report.validation.verdict is Verdict.PASSED
    assert report.validation.accuracy is not None
    assert (report.validation.accuracy.samples, report.validation.accuracy.artifact) == (3, 1.0)
    assert "zoo run colours picture.png" in (bundle / "report.html").read_text()
    large = tmp_path / "large.png"
    Image.new("RGB", (900, 300), _COLOURS["green"]).save(large)
    capfd.readouterr()
    assert main(["run", str(bundle), str(large), "--allow-unsigned"]) == 0
    assert capfd.readouterr().out == "green 1.00\n"
    for wide, high in ((400, 20), (5, 30)):  # red but for the middle square, which is not stretched
        picture, side = Image.new("RGB", (wide, high), _COLOURS["red"]), min(wide, high)
        corner = ((wide - side) // 2, (high - side) // 2)
        picture.paste(_COLOURS["green"], (*corner, corner[0] + side, corner[1] + side))
        picture.save(large)
        assert main(["run", str(bundle), str(large), "--allow-unsigned"]) == 0
        assert capfd.readouterr().out == "green 1.00\n"
    files = [str(tmp_path / "index" / f"{name}.png") for name in ("blue", "red")]
    assert main(["run", str(bundle), *files, "--json", "--allow-unsigned"]) == 0
    rows = json.loads(capfd.readouterr().out)["files"]
    assert [(r["file"], r["labels"][0]["label"]) for r in rows] == [
        (files[0], "blue"),
        (files[1], "red"),
    ]
    odd = tmp_path / "odd.tiff"
    Image.fromarray(np.full((9, 9), 300, np.uint16)).save(odd)  # of 65,535: nearly black
    assert read_picture(str(odd)).getextrema() == ((1, 1),) * 3
    grey = tmp_path / "grey.pgm"
    grey.write_bytes(b"P5 2 1 4095\n" + bytes([0, 0, 15, 255]))  # 0 and 4095 of 4095
    assert read_picture(str(grey)).getextrema() == ((0, 255),) * 3
    Image.fromarray(np.full((9, 9), 0.5, np.float32)).save(odd)
    for file, fact in ((manifest / "nets.py", "cannot identify"), (odd, "pixels of mode F")):
        assert main(["run", str(bundle), str(file), "--allow-unsigned"]) == 2
        assert f"{file}: cannot be read as a picture: {fact}" in capfd.readouterr().err


def test_a_recording_becomes_stretches(
    manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """State goes on from block to block, in the gate and in use; at another rate, too.

    The level after n loud blocks is 0.98 (1 - 2^-n), of which tanh(4 x) is over a half from the
    first on; it is below a half from the third silent block on: of 100 blocks, 2 are wrong.
    """
    bundle, report = converted(manifest, "loudness", tmp_path)
    assert report.validation.verdict is Verdict.PASSED
    assert report.validation.accuracy is not None
    assert report.validation.accuracy.samples == 100
    assert report.validation.accuracy.artifact == report.validation.accuracy.eager == 0.98
    two = tmp_path / "two.wav"
    _tone(two, [(0.1, 0.5), (0.7, 0.72), (1.0, 1.3)], 2.0)
    capfd.readouterr()
    assert main(["run", str(bundle), str(two), "--allow-unsigned"]) == 0
    assert capfd.readouterr().out == "0.10 to 0.52 s\n1.00 to 1.32 s\n"
    assert main(["transcribe", str(bundle), str(two), "--allow-unsigned"]) == 1
    assert "does not understand speech" in capfd.readouterr().err


def test_a_line_is_read_whole_or_refused(
    manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Strokes in 16 columns of 64, one at the very end; a column more does not fit."""
    bundle, _ = converted(manifest, "ink", tmp_path)
    line = np.full((4, 65), 255, np.uint8)
    line[:, 3:64:4] = 0
    capfd.readouterr()
    for width, out, told in (
        (64, "|" * 16 + "\n", ""),
        (65, "", "is over 16 times as wide as high"),
    ):
        Image.fromarray(line[:, :width]).save(tmp_path / "line.png")
        code = main(["run", str(bundle), str(tmp_path / "line.png"), "--allow-unsigned"])
        found = capfd.readouterr()
        assert (code, found.out) == (2 if told else 0, out)
        assert told in found.err


def test_sentences_become_similarities(
    manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cosines of embeddings: of the same word 1, of two 0, of one of two the root of a half."""
    bundle, report = converted(manifest, "words", tmp_path)
    assert report.validation.verdict is Verdict.PASSED
    capfd.readouterr()
    assert main(["run", str(bundle), "Cat", "cats", "--allow-unsigned"]) == 0
    assert capfd.readouterr().out == "1.00\n"
    assert main(["run", str(bundle), "cat", "dog!", "dog, CAT", "--allow-unsigned"]) == 0
    assert capfd.readouterr().out == "dog!: 0.00\ndog, CAT: 0.71\n"
    assert main(["run", str(bundle), "cat", "--allow-unsigned"]) == 2
    assert "Give two, or more" in capfd.readouterr().err
    assert main(["run", str(bundle), "dog", "[MASK]", "[mask]", "--allow-unsigned"]) == 0
    assert capfd.readouterr().out == "[MASK]: 1.00\n[mask]: 0.00\n"  # as BertTokenizer reads them
    for files, told in (
        (["cat", " "], "' ': has no word"),
        (["cat", "caf\udce9"], r"'caf\udce9': is not text in UTF-8"),
        ([], f"{bundle}: no file was named"),
    ):
        assert main(["run", str(bundle), *files, "--allow-unsigned"]) == 2
        assert told in capfd.readouterr().err


@pytest.mark.parametrize("count", [0, 10, 159, 160, 15999, 16000, 16001, 32000, 400000])
def test_pitch_has_a_frame_wherever_one_is_centred(count: int) -> None:
    """As torchcrepe pads: 1 + samples // 160 frames, the last at the very end if it fits."""
    parts = [n for _, n in blocks([np.ones(count, np.float32)], 16864, 16000, 512)]
    assert sum(min((n - 512) // 160 + 1, 100) for n in parts) == 1 + count // 160


@pytest.mark.parametrize("at", [3, 4, 7, 9, 64])
def test_corners_of_boxes_are_those_of_facenet_pytorch(at: int) -> None:
    """Floors of float32 by its formula: in float64 each of these has one a pixel beside it."""
    scales = [np.zeros((1, 70, 70), np.float32) for _ in range(20)]
    scales[0][0, at, at] = 1.0

    def sure(inputs: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        count = len(inputs["picture"])
        return {"probability": np.ones((count, 1), "f4"), "offsets": np.zeros((count, 4), "f4")}

    def proposed(_: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        return {"probability": scales.pop(0), "offsets": np.zeros((1, 4, 70, 70), "f4")}

    calls = {"proposals": proposed, "refinement": sure, "output": sure}
    picture = np.zeros((260, 260, 3), np.uint8)
    [[*box, _]] = find_boxes(picture, BoxesHead(kind="boxes"), calls).tolist()
    corner, scale = 2 * torch.tensor([at, at], dtype=torch.float32), 12 / 20
    assert box == [*((corner + 1) / scale).floor(), *((corner + 12) / scale).floor()]


def test_a_tokenizer_of_another_size_is_found_in_pull(manifest: Path, tmp_path: Path) -> None:
    """Before anything is exported or compiled."""
    models = manifest / "models.yaml"
    models.write_text(models.read_text().replace('"numbered": 7', '"numbered": 8'))
    refused = pytest.raises(SourceError, match=r"tokenizer\.json has 7 tokens, not 0 to 7")
    with ModelStages(planned_job(manifest, "words", tmp_path)) as stages, refused:
        stages.run(PULL)
