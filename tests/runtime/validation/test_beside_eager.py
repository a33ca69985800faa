"""An artifact and eager PyTorch, timed like for like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from menagerie.errors import SessionError
from transforms import latency
from transforms.golden import GoldenCase
from transforms.latency import measure_beside_eager
from zoo.spec import ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.records import Measurement

SPEC = ProgramSpec.model_validate({"inputs": [{"name": "x", "shape": [2, 6]}]})


class Seen(torch.nn.Module):
    """The identity; keeps the inputs and the number of threads that it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[torch.Tensor] = []
        self.threads: set[int] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Note the call."""
        self.inputs.append(x)
        self.threads.add(torch.get_num_threads())
        return x


def measured(bundle: Path, module: torch.nn.Module, *sizes: int) -> tuple[Measurement, Measurement]:
    """With golden cases of so many elements."""
    cases = [GoldenCase({}, {"x": torch.zeros(n)}, {}) for n in sizes]
    return measure_beside_eager(bundle, module, SPEC, cases, threads=2)


def test_both_are_timed_on_the_largest_case_with_the_threads_asked_for(
    make_bundle: Callable[..., Path], misdeed: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many turns each; the threads of the caller are as before."""
    monkeypatch.setattr(latency, "_SECONDS", 0.0)
    bundle = make_bundle(main=[misdeed.SEGMENTATION_FAULT, misdeed.NONE])
    module, before = Seen(), torch.get_num_threads()
    artifact, eager = measured(bundle, module, 3, 5)
    assert (artifact.case, artifact.threads) == (eager.case, eager.threads) == (1, 2)
    assert artifact.minimum_ms > 0
    assert {x.numel() for x in module.inputs} == {5}
    assert module.threads == {2}
    assert torch.get_num_threads() == before


def test_an_artifact_that_cannot_be_run_is_an_error(
    make_bundle: Callable[..., Path], misdeed: type
) -> None:
    """One that crashes, where nothing has been proven yet."""
    bundle = make_bundle(main=[misdeed.SEGMENTATION_FAULT])
    before = torch.get_num_threads()
    with pytest.raises(SessionError, match="program main: its process gave no answer"):
        measured(bundle, torch.nn.Identity(), 3)
    assert torch.get_num_threads() == before
