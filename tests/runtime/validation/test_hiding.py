"""An artifact of which a half is wrong by a hundredth is refused, whichever half it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from menagerie.format.bundle_manifest import BundleProgram, TensorSpec, unsealed
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.validation.checks import LoadedProgram, judge_program
from menagerie.validation.goldens import GoldenCases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from menagerie.tensor_files import Array

_SHAPE = (4, 32)
_CASES = 3
_OUTPUTS = ("large", "small")
_ENTRY = BundleProgram(
    name="main",
    files={"library": unsealed("model.so"), "golden": unsealed("golden.safetensors")},
    golden_cases=_CASES,
    inputs=(TensorSpec(name="x", dtype=Dtype.FLOAT32, shape=(1,)),),
    outputs=tuple(TensorSpec(name=n, dtype=Dtype.FLOAT32, shape=_SHAPE) for n in _OUTPUTS),
    dimensions={},
    constants={},
    symbols=(),
)


def _eager(case: int) -> dict[str, Array]:
    """The second output is ten thousand times smaller, and so are last rows, a thousand times."""
    drawn = np.random.default_rng(case).normal(size=_SHAPE)
    rows = np.array([1, 1, 1e-3, 1e-3])[:, None]
    return {
        "large": (100 * drawn * rows).astype(np.float32),
        "small": (0.01 * drawn * rows).astype(np.float32),
    }


@dataclass(frozen=True)
class _Session:
    """Gives eager's outputs, rounded differently, and what `spoil` makes of them."""

    spoil: Callable[[int, dict[str, Array]], None]
    keeps_state = False

    def reset(self) -> None:
        """There is no state."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The input is the case's number."""
        case = int(inputs["x"][0])
        outputs = {n: np.nextafter(v, np.float32(np.inf)) for n, v in _eager(case).items()}
        self.spoil(case, outputs)
        return outputs


def _fact(folder: Path, spoil: Callable[[int, dict[str, Array]], None]) -> str:
    tensors = {f"{c}/input/x": np.array([c], np.float32) for c in range(_CASES)}
    tensors |= {f"{c}/output/{n}": v for c in range(_CASES) for n, v in _eager(c).items()}
    save_file(tensors, folder / "golden.safetensors")
    goldens = GoldenCases(folder / "golden.safetensors", _ENTRY)
    program = LoadedProgram(_ENTRY, _Session(spoil), goldens)  # type: ignore[arg-type]
    judged = judge_program(program, DEFAULT_TOLERANCES, step=lambda _: None, seconds=0, threads=1)
    return next(iter(judged.facts), "")


def test_rounding_passes(tmp_path: Path) -> None:
    """Every element one step of float32 off."""
    assert _fact(tmp_path, lambda _case, _outputs: None) == ""


@pytest.mark.parametrize("output", _OUTPUTS)
@pytest.mark.parametrize("case", range(_CASES))
@pytest.mark.parametrize(
    "where",
    [
        (slice(None), slice(0, None, 2)),
        (slice(0, 2), slice(None)),
        (slice(2, 4), slice(None)),
        (slice(2, 3), slice(None)),
        (slice(None), slice(16, None)),
    ],
    ids=["every other", "large rows", "small rows", "a small row", "a half of each row"],
)
def test_a_hundredth_of_a_half_is_seen(
    tmp_path: Path, output: str, case: int, where: tuple[slice, slice]
) -> None:
    """In one output of one case alone, however small the wrong half is compared with the rest."""

    def spoil(number: int, outputs: dict[str, Array]) -> None:
        if number == case:
            outputs[output][where] *= np.float32(1.01)

    assert _fact(tmp_path, spoil).startswith(f"program main, case {case}, output {output}: ")
