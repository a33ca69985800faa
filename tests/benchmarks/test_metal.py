"""What the figures of a Metal artifact are made of, by hand, and what is reported of models."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import metal
from benchmarks.metal import Chip, bytes_of

if TYPE_CHECKING:
    from pathlib import Path

_CHIP = Chip("round", bandwidth=100, throughput=2)


def test_the_roofline_is_the_longer_of_both() -> None:
    """100 MB at 100 GB/s take a millisecond, 4 GFLOP at 2 TFLOP/s two."""
    assert _CHIP.milliseconds(1e8, 0) == pytest.approx(1)
    assert _CHIP.milliseconds(1e8, 4e9) == pytest.approx(2)
    assert _CHIP.milliseconds(4e8, 4e9) == pytest.approx(4)


def test_a_program_reads_its_own_weights_once() -> None:
    """Another program's are not read; integers come with their scales."""
    tensors = {
        "shared": np.zeros((3, 4), np.float32),
        "packed": np.zeros((2, 32), np.int8),
        "packed.scales": np.zeros((2, 1), np.uint16),
        "another's": np.zeros(1000, np.float32),
    }
    assert bytes_of(["shared", "packed", "shared"], tensors) == 48 + 64 + 4


def test_a_model_that_cannot_be_fetched_is_reported_and_the_next_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is next to its name, and the command ends with 1."""
    keys = ("dispatches", "encoders", "commits", "bytes", "operations", "error")

    def fetched(model: str, folder: Path) -> Path:
        if model == "none":
            raise RuntimeError("it was neither pulled nor converted")
        return folder

    monkeypatch.setattr(metal, "fetch", fetched)
    monkeypatch.setattr(metal, "weights", lambda _: {"main": 1})
    monkeypatch.setattr(metal, "counts", lambda _: {"main": dict.fromkeys(keys, 1)})
    monkeypatch.setattr(sys, "argv", ["metal.py", "none", "some"])
    with pytest.raises(SystemExit) as caught:
        metal.main()
    said = capsys.readouterr()
    assert caught.value.code == 1
    assert said.err.splitlines() == ["none: it was neither pulled nor converted", "some: counting"]
    assert [line.split()[1] for line in said.out.splitlines()[2:]] == ["some/main"]
