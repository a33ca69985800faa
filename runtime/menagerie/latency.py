"""How fast a program of a bundle is, on its own golden input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from menagerie.errors import UsageError
from menagerie.format.folder import open_bundle
from menagerie.platforms import emulates
from menagerie.profile import profile
from menagerie.session import Session
from menagerie.validation.checks import from_the_start
from menagerie.validation.goldens import GoldenCases
from menagerie.validation.measure import latency

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from menagerie.validation.records import Measurement, Profile

__all__ = ["EMULATED", "is_emulated", "measure", "measure_kernels"]

EMULATED = "emulated: the times are of this machine's processor, and say nothing of a GPU's"


def measure(
    folder: Path,
    program: str = "main",
    *,
    threads: int = 1,
    seconds: float = 3.0,
    allow_unsigned: bool | None = None,
) -> Measurement:
    """Times a program on the largest of its golden inputs, in this process.

    Args:
        folder: the bundle's.
        program: which of its programs.
        threads: how many a run uses.
        seconds: how long to go on measuring, after one call that is not counted.
        allow_unsigned: as of `menagerie.session.Session`.

    Raises:
        ArtifactError: the bundle breaks the format.
        SessionError: it cannot run here.
        UsageError: it has no such program.
    """
    case, inputs = _largest(folder, program)
    with Session(folder, program, threads, allow_unsigned=allow_unsigned) as session:
        run = from_the_start(session, inputs)
        return latency(run, seconds=seconds, threads=threads, case=case)


def measure_kernels(
    folder: Path,
    program: str = "main",
    *,
    threads: int = 1,
    seconds: float = 3.0,
    allow_unsigned: bool | None = None,
) -> Profile:
    """Times each kernel of a program for the CPU on the largest of its golden inputs.

    Arguments and errors are those of `measure`.
    """
    _, inputs = _largest(folder, program)
    with Session(folder, program, threads, allow_unsigned=allow_unsigned) as session:
        run = from_the_start(session, inputs)
        return profile(session, run, threads=threads, seconds=seconds)


def is_emulated(folder: Path) -> bool:
    """Whether this machine emulates the device of a bundle, so that times are the emulator's.

    Raises:
        ArtifactError: the bundle breaks the format.
    """
    return emulates(open_bundle(folder, check_hashes=False).manifest.requires)


def _largest(folder: Path, program: str) -> tuple[int, dict[str, np.ndarray]]:
    """A program's largest golden case: its number and its inputs."""
    bundle = open_bundle(folder, check_hashes=False)
    programs = {each.name: each for each in bundle.manifest.programs}
    if program not in programs:
        raise UsageError(
            str(folder),
            f"has no program {program!r}",
            f"It has: {', '.join(programs)}. Name one by --program",
        )
    goldens = GoldenCases(bundle.file(programs[program].golden.path), programs[program])
    case = goldens.largest()
    return case, goldens.inputs(case)
