"""A bundle whose model hears levels: a frame of mean amplitude d / 16 says digit d - 1."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from menagerie.format.folder import seal
from menagerie.speech.recipe import Recipe
from menagerie.typed_json import check, document

sys.path.insert(0, str(Path(__file__).parents[1] / "format"))

from bundle_maker import draft, placed

if TYPE_CHECKING:
    from collections.abc import Mapping

    Arrays = Mapping[str, np.ndarray]

FRAME, RATE, HIGH = 1280, 16_000, 1280 * 100
BLANK = 10


class LevelSession:
    """In place of `Session`: what the two programs give, by arithmetic.

    Attributes:
        heard: how many samples each call of `listen` was given.
    """

    heard: list[int] = []  # noqa: RUF012 - shared on purpose, emptied by the fixture

    def __init__(
        self, bundle: Path, program: str, threads: int | None, *, allow_unsigned: bool | None
    ) -> None:
        del bundle, threads, allow_unsigned
        self._program = program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """`listen`: a frame's digit as one of eleven scores. `emit`: the frames themselves."""
        if self._program == "emit":
            durations = np.zeros((*inputs["frames"].shape[:2], 2), np.float32)
            durations[..., 1] = 1.0
            state = {"hidden": inputs["hidden"] + 1, "cell": inputs["cell"]}
            return {"logits": inputs["frames"], "durations": durations, **state}
        samples = inputs["samples"]
        assert samples.dtype == np.float32
        assert samples.shape[1] % FRAME == 0
        self.heard.append(samples.shape[1])
        levels = np.abs(samples.reshape(1, -1, FRAME)).mean(-1)
        digits = np.round(levels * 16).astype(int) - 1
        scores = np.eye(BLANK + 1, dtype=np.float32)[np.where(digits < 0, BLANK, digits)]
        return {"logits": scores, "encoded": scores}


def recording(digits: Mapping[int, int], frames: int) -> np.ndarray:
    """(frames * FRAME,) float32 that says each digit at its frame."""
    samples = np.zeros((frames, FRAME), np.float32)
    for frame, digit in digits.items():
        samples[frame] = (digit + 1) / 16
    return samples.reshape(-1)


def make_levels(
    folder: Path, takes: Mapping[str, dict[str, Any]] | None = None, **changes: Any
) -> Path:
    """The bundle; `changes` replace fields of its recipe, `takes` what `listen` and `emit` take."""
    heads = {
        "ctc": {"kind": "ctc", "listen": "listen", "blank": BLANK},
        "tdt": {
            "kind": "transducer", "listen": "listen", "emit": "emit", "blank": BLANK,
            "durations": [0, 1],
        },
    }  # fmt: skip
    vocabulary = {"kind": "sentencepiece", "pieces": [f"\u2581{digit}" for digit in range(10)]}
    fields = {"rate": RATE, "frame": FRAME, "overlap": 1.6, "heads": heads}
    recipe = check(Recipe, fields | {"vocabulary": vocabulary} | changes)
    samples = {"name": "samples", "dtype": "float32", "shape": [1, "n"]}
    lengths = {"name": "lengths", "dtype": "int64", "shape": [1]}
    state = {"dtype": "float32", "shape": [1, 1, 4]}
    frames = {"name": "frames", "dtype": "float32", "shape": [1, 8, 11]}
    listen = {"inputs": [samples, lengths], "dimensions": {"n": [2 * FRAME, HIGH, FRAME]}}
    emit = {
        "inputs": [{"name": "hidden", **state}, {"name": "cell", **state}, frames],
        "dimensions": {},
    }
    programs = []
    for name, program in (takes or {"listen": listen, "emit": emit}).items():
        files = {role: placed(f"{name}/{role}") for role in ("library", "golden")}
        output = {"name": "logits", "dtype": "float32", "shape": [1, "?", 11]}
        programs.append(
            {
                "name": name, "files": files, "golden_cases": 1, "outputs": [output],
                "constants": {}, "symbols": [], **program,
            }
        )  # fmt: skip
        (folder / name).mkdir(parents=True)
        for role in ("library", "golden"):
            (folder / name / role).write_bytes(role.encode())
    (folder / "weights.safetensors").write_bytes(b"the weights")
    (folder / "speech.json").write_bytes(document(recipe, sort=False))
    files = {"weights": placed("weights.safetensors"), "speech": placed("speech.json")}
    seal(folder, draft(model="levels", programs=programs, files=files))
    return folder
