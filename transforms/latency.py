"""How fast the artifact is beside eager PyTorch, like for like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from menagerie.validation.turns import artifact, take_turn, time_in_turns
from transforms.export import CallableProgram

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transforms.golden import GoldenCase
    from zoo.records import Measurement
    from zoo.spec import ProgramSpec

__all__ = ["measure_beside_eager"]

_SECONDS = 2.0  # for both together


def measure_beside_eager(
    bundle: Path,
    model: torch.nn.Module,
    spec: ProgramSpec,
    cases: Sequence[GoldenCase],
    *,
    threads: int,
) -> tuple[Measurement, Measurement]:
    """Time a program of a bundle and eager PyTorch in turns, on the same inputs and threads.

    The artifact runs in a process of its own without torch, eager in this one. The case is the one
    with the most input elements.

    Returns:
        The artifact's measurement, and eager's.

    Raises:
        SessionError: the artifact could not be run.
    """
    module = CallableProgram(model, spec)
    elements = [sum(t.numel() for t in case.inputs.values()) for case in cases]
    number = elements.index(max(elements))
    inputs = list(cases[number].inputs.values())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad(), artifact(bundle, spec.name, number, threads) as partner:
            artifacts, eager = time_in_turns(
                [partner.turn, lambda: take_turn(lambda: module(*inputs))],
                seconds=_SECONDS,
                threads=threads,
                case=number,
            )
    finally:
        torch.set_num_threads(before)
    return artifacts, eager
