"""Bundles around a library that misbehaves on command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from menagerie.format.bundle_manifest import AccuracyData
from menagerie.format.folder import seal
from menagerie.numerics import Dtype

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from handmade import handmade_program
from manifests import draft_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHAPE = (2, 4)


class Misdeed(IntEnum):
    """What the library does when the first element of its input has this value; see rogue.c."""

    NONE = 0
    SEGMENTATION_FAULT = 1
    ABORT = 2
    EXIT_QUIETLY = 3
    SPIN_BESIDE_A_CHILD = 4
    PAUSE = 5
    HOARD_MEMORY = 6
    GIVE_NAN = 7
    CHANGE_EVERY_RUN = 8
    RETURN_AN_ERROR = 9
    COUNT_CONTAINERS = 10
    LOAD_LIBTORCH = 11
    SCRIBBLE_ON_ALL_FILES = 12
    CRASH_AT_UNLOAD = 13


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rogue model library and an empty library of libtorch's name."""
    folder = tmp_path_factory.mktemp("rogue")
    (folder / "empty.c").write_text("", encoding="utf-8")
    source = Path(__file__).with_name("rogue.c")
    runtime = folder / "libmenagerie_cpu.so"  # only its name goes into what is linked with it

    def link(output: Path, *arguments: str) -> None:
        compiler = shutil.which("cc") or "cc"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(output), *arguments], check=True)

    link(runtime, f"-Wl,-soname,{runtime.name}", str(folder / "empty.c"))
    link(folder / "libtorch_cpu.so", str(folder / "empty.c"))
    link(folder / "model.so", "-O1", str(source), "-Wl,--no-as-needed", str(runtime))
    return folder


def case_input(misdeed: Misdeed) -> np.ndarray:
    """A case's input: the command, then numbers that are no commands."""
    values = -np.arange(1, 9, dtype=np.float32)
    values[0] = misdeed
    return values.reshape(SHAPE)


@pytest.fixture
def make_bundle(tmp_path: Path, libraries: Path) -> Callable[..., Path]:
    """Makes a sealed bundle whose golden outputs are its inputs, as the library is expected to act.

    Args (of the returned function):
        programs: misdeed of every case, by program.
        gate: labels of the accuracy gate's samples, and eager's accuracy.
    """

    def make(
        gate: tuple[Sequence[int], float] | None = None, **programs: Sequence[Misdeed]
    ) -> Path:
        bundle = tmp_path / "bundle"
        for name, misdeeds in programs.items():
            folder = bundle / "programs" / name
            folder.mkdir(parents=True)
            for library in ("model.so", "libtorch_cpu.so"):
                shutil.copy(libraries / library, folder)
            save_file(
                {
                    f"{case}/{side}": case_input(misdeed)
                    for case, misdeed in enumerate(misdeeds)
                    for side in ("input/x", "output/y")
                },
                folder / "golden.safetensors",
            )
        save_file({"unused": np.zeros(1, np.float32)}, bundle / "weights.safetensors")
        accuracy = None
        if gate is not None:
            accuracy = _gate(bundle, *gate)
        made = [handmade_program(n, Dtype.FLOAT32, SHAPE, len(m)) for n, m in programs.items()]
        files = {"weights": "weights.safetensors"}
        if accuracy is not None:
            files["accuracy"] = "accuracy.safetensors"
        seal(bundle, draft_manifest("rogue", made, files, accuracy=accuracy, random_weights=None))
        return bundle

    return make


def _gate(bundle: Path, labels: Sequence[int], eager: float) -> AccuracyData:
    """A gate whose samples are batches of one row pair: the label's column is the largest."""
    rows = np.full((len(labels), SHAPE[1]), -9.0, np.float32)
    rows[np.arange(len(labels)), np.asarray(labels) % SHAPE[1]] = -1.0
    save_file({"x": rows, "labels": np.asarray(labels, np.int64)}, bundle / "accuracy.safetensors")
    return AccuracyData(program="main", output="", batch=SHAPE[0], eager_accuracy=eager)


@pytest.fixture
def misdeed() -> type[Misdeed]:
    """The commands of the rogue library."""
    return Misdeed
