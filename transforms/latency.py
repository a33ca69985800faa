"""How fast artifacts are beside eager PyTorch, like for like."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from menagerie.timing import artifact, take_turn, time_in_turns
from menagerie.validation.checks import stand_in
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transforms.export.prepare import Prepared
    from transforms.targets import Target
    from zoo.records import Measurement

ProgramTimes = tuple[tuple[str, "Measurement"], ...]  # by program

_SECONDS = 1.0  # for an artifact and eager together

_log = logging.getLogger(__name__)


def measure_beside_eager(
    bundle: Path,
    programs: Sequence[Prepared],
    target: Target,
    *,
    threads: int,
    seconds: float = _SECONDS,
) -> tuple[ProgramTimes, ProgramTimes]:
    """Time the programs of a bundle and eager PyTorch in turns, on the same inputs and threads.

    The artifact runs in a process of its own without torch, eager in this one. The golden case is
    the stand-in (`menagerie.validation.checks`), by the times that eager took to make them.

    Args:
        bundle: written, not yet proven.
        programs: all of them.
        target: that they were lowered for.
        threads: that each side uses.
        seconds: how long a program is timed for, both sides together.

    Returns:
        The artifacts' times, and eager's. Neither where there is no time for it, where this machine
        only emulates the target's device, or where a program cannot be run: why, is found out and
        said by the validation that follows.
    """
    if seconds <= 0 or target.emulated_here:
        return (), ()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            pairs = [_in_turns(bundle, program, threads, seconds) for program in programs]
    except SessionError as error:
        _log.warning("No latencies: %s", error)
        return (), ()
    finally:
        torch.set_num_threads(before)
    names = [program.name for program in programs]
    artifacts, eager = zip(*pairs, strict=True)
    return tuple(zip(names, artifacts, strict=True)), tuple(zip(names, eager, strict=True))


def _in_turns(
    bundle: Path, program: Prepared, threads: int, seconds: float
) -> tuple[Measurement, Measurement]:
    elements = [sum(t.numel() for t in case.inputs.values()) for case in program.goldens]
    number = stand_in(elements, [case.seconds for case in program.goldens])
    inputs = program.goldens[number].inputs
    with artifact(bundle, program.name, number, threads) as partner:
        # Eager first: the artifact is loaded during its call that is not counted.
        sides = (lambda: take_turn(lambda: program.eager(inputs)), partner.turn)
        eager, found = time_in_turns(sides, seconds=seconds, threads=threads, case=number)
    return found, eager
