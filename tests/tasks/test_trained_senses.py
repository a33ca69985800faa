"""Heads of bundles that hear, see and read: one bundle of small programs, used by each head."""

from __future__ import annotations

import hashlib
import json
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from menagerie.cli import main
from transforms import Program, convert

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_RATE = 8000


class _Voice(nn.Module):
    def forward(self, samples: Tensor) -> Tensor:
        sides = torch.stack([samples.relu().mean(1), (-samples).relu().mean(1)], 1)
        return nn.functional.normalize(sides + 1e-9, dim=-1)


class _Pitch(nn.Module):
    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        frames = samples.unfold(1, 40, 40).abs().mean(2)
        return 100.0 + 100.0 * frames, frames


class _Cuts(nn.Module):
    def forward(self, frames: Tensor) -> Tensor:
        light = frames.float().mean((2, 3, 4))
        change = nn.functional.pad((light[:, 1:] - light[:, :-1]).abs(), (0, 1))
        return torch.sigmoid(change - 50.0)[..., None]


class _Line(nn.Module):
    def forward(self, picture: Tensor) -> Tensor:
        columns = picture.float().mean(1)
        return torch.cat([torch.full_like(columns[..., :1], 50.0), columns[..., :2]], -1)


class _Windows(nn.Module):
    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        light = nn.functional.avg_pool2d(picture.permute(0, 3, 1, 2).mean(1, keepdim=True), 12, 2)
        return light[:, 0] / 255.0, (light * 0.0).expand(-1, 4, -1, -1)


class _Squares(nn.Module):
    def forward(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        light = picture.mean((1, 2))[:, :1] / 255.0
        return light, light.expand(-1, 4) * 0.0


def _program(module: nn.Module, value: Tensor, name: str, *outputs: str, **sizes: Any) -> Program:
    names = {"inputs": [name], "outputs": outputs}
    shapes = ({int(axis[1:]): size for axis, size in sizes.items()},) if sizes else None
    return Program(module.eval(), (value,), dynamic_shapes=shapes, names=names)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, with a size that may vary named after its axis."""
    size, found = torch.export.Dim("size", min=14, max=64), ("probability", "offsets")
    wide, count = torch.export.Dim("wide", min=4, max=32), torch.export.Dim("count", min=1, max=64)
    picture, squares = torch.rand(1, 20, 30, 3) * 255, torch.rand(3, 24, 24, 3) * 255
    high = torch.export.Dim("high", min=14, max=64)
    programs = {
        "voice": _program(_Voice(), torch.randn(1, 80), "samples", "embedding"),
        "pitch": _program(_Pitch(), torch.randn(1, 80), "samples", "pitch", "confidence"),
        "cuts": _program(_Cuts(), torch.zeros(1, 4, 2, 2, 3).byte(), "frames", "probability"),
        "six": _program(_Cuts(), torch.zeros(1, 6, 2, 2, 3).byte(), "frames", "probability"),
        "line": _program(_Line(), torch.zeros(1, 4, 8, 3).byte(), "picture", "logits", a2=wide),
        "windows": _program(_Windows(), picture, "picture", *found, a1=high, a2=size),
        "middle": _program(_Squares(), squares, "picture", *found, a0=count),
        "large": _program(_Squares(), torch.rand(3, 48, 48, 3) * 255, "picture", *found, a0=count),
    }
    folder = tmp_path_factory.mktemp("senses") / "bundle"
    convert(programs, target="cpu", out=folder, measure_seconds=0)
    return folder


@pytest.fixture
def used(bundle: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Writes a head's recipe into the bundle; gives what `menagerie run` prints for files."""

    def use(head: dict[str, Any], pieces: list[str], *files: object) -> str:
        recipe = {
            "heads": {"it": head}, "vocabulary": {"kind": "plain", "pieces": pieces},
        }  # fmt: skip
        content = json.dumps(recipe).encode()
        (bundle / "speech.json").write_bytes(content)
        manifest = json.loads((bundle / "manifest.json").read_text())
        digest = hashlib.sha256(content).hexdigest()
        manifest["files"]["speech"] = {
            "path": "speech.json", "sha256": digest, "bytes": len(content),
        }  # fmt: skip
        (bundle / "manifest.json").write_text(json.dumps(manifest))
        capfd.readouterr()
        code = main(["run", str(bundle), *map(str, files), "--allow-unsigned"])
        shown = capfd.readouterr()
        assert code == 0, shown.err
        return shown.out

    return use


def _wav(path: Path, samples: np.ndarray) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


@pytest.mark.sweep
def test_recordings(used: Callable[..., str], tmp_path: Path) -> None:
    """Embeddings of blocks are averaged and compared; each frame of a recording has hertz once.

    Samples of one sign against the other's are at right angles; a block of each against one is at
    45 degrees. Of blocks of 80 samples, the last has 10 of a recording: below its coverage.
    """
    up, down = np.full(160, 0.5), np.full(160, -0.5)
    one, two = _wav(tmp_path / "1.wav", up), _wav(tmp_path / "2.wav", down)
    both = _wav(tmp_path / "3.wav", np.concatenate([up[:80], down[:80], down[:10]]))
    voices = {"kind": "voices", "program": "voice", "rate": _RATE, "hop": 80, "coverage": 0.75}
    assert used(voices, ["voices"], one, two, one, both) == (
        f"{two}: 0.00\n{one}: 1.00\n{both}: 0.71\n"
    )
    pitch = {"kind": "pitch", "program": "pitch", "rate": _RATE, "hop": 80, "frames": 2}
    steps = np.repeat([0.25, 0.75, 0.5], 40)
    found = used(pitch | {"least": 0.3}, ["pitch"], _wav(tmp_path / "4.wav", steps))
    assert found == "0.01 s 175.0 Hz\n0.01 s 150.0 Hz\n"


def test_films(used: Callable[..., str], tmp_path: Path) -> None:
    """A shot ends at the frame before the light changes, wherever windows begin."""
    light = [0, 8, 16, 200, 208, 216, 224, 20, 28]  # Pillow would join equal frames
    frames = [Image.new("RGB", (8, 8), (n, n, n)) for n in light]
    film = tmp_path / "film.gif"
    frames[0].save(film, save_all=True, append_images=frames[1:], duration=40, optimize=False)
    for program in ("cuts", "six"):
        head = {"kind": "borders", "program": program, "threshold": 0.5}
        shown = used(head, ["borders"], film)
        assert shown == "frames 0 to 2\nframes 3 to 6\nframes 7 to 8\n"


def test_lines_of_text(used: Callable[..., str], tmp_path: Path) -> None:
    """Colours are characters: a black column parts two equal ones, and a wide one is one."""
    columns = [(255, 0, 0), (255, 0, 0), (0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 0)]
    picture = Image.new("RGB", (6, 4))
    for x, colour in enumerate(columns):
        picture.paste(colour, (x, 0, x + 1, 4))
    picture.save(tmp_path / "line.png")
    head = {"kind": "text", "program": "line"}
    assert used(head, ["", "r", "g"], tmp_path / "line.png") == "rrg\n"


def test_boxes(used: Callable[..., str], bundle: Path, tmp_path: Path) -> None:
    """What is found is inside the bright square, and no box is within another; it is drawn.

    A recipe whose scales never end is refused.
    """
    picture = Image.new("RGB", (80, 60))
    picture.paste((255, 255, 255), (20, 10, 60, 50))
    picture.save(tmp_path / "photo.png")
    head = {
        "kind": "boxes", "proposals": "windows", "refinement": "middle", "output": "large",
        "smallest": 20.0, "factor": 0.5, "thresholds": [0.9, 0.95, 0.98],
    }  # fmt: skip
    lines = used(head, ["boxes"], tmp_path / "photo.png").splitlines()
    boxes = [[float(n.strip(",")) for n in line.split()[:4]] for line in lines]
    assert boxes
    assert all(l >= 18 and t >= 8 and r <= 63 and b <= 53 for l, t, r, b in boxes)  # noqa: E741
    command = ["run", str(bundle), str(tmp_path / "photo.png"), "--allow-unsigned"]
    assert main([*command, "--picture", str(tmp_path / "out.png")]) == 0
    with Image.open(tmp_path / "out.png") as drawn:
        assert (255, 0, 0) in {colour for _, colour in drawn.getcolors(10_000)}
    for more in ([str(tmp_path / "photo.png"), "--picture", "x.png"], ["--picture", "x.unknown"]):
        assert main([*command, *more]) == 2
    assert main([*command[:2], "--picture", "x.png"]) == 2
    with pytest.raises(AssertionError, match="factor: is 1, not above 0"):
        used(head | {"factor": 1.0}, ["boxes"], tmp_path / "photo.png")
