"""The speed of a bundle's program: by itself, or in turns with another side.

For turns, each side is a process: libraries of one cannot help or hinder the other, and whatever
slows the machine slows both. A turn repeats the call for a few hundredths of a second while the
other process sleeps. The artifact's is ``python -m menagerie.timing BUNDLE PROGRAM CASE THREADS``:
it takes a turn for each line that it reads, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, cast

from menagerie.errors import SessionError, UsageError
from menagerie.format.folder import open_bundle
from menagerie.host import emulates
from menagerie.profile import Turn, latency, measurement, profile, take_turn
from menagerie.session import Session
from menagerie.typed_json import Malformed, from_json
from menagerie.validation.checks import from_the_start
from menagerie.validation.findings import Measurement, Profile
from menagerie.validation.goldens import GoldenCases
from menagerie.validation.validate import clean_environment

EMULATED = "emulated: the times are of this machine's processor, and say nothing of a GPU's"
_FEWEST_TURNS = 3
_STEADY_TURNS, _STEADY = 6, 1.02  # the largest of the last medians over the smallest
_PATIENCE = 2  # multiple of the requested time after which fewer turns suffice
_MOST_SECONDS = 300.0  # limit on waiting for an answer


def measure(
    folder: Path,
    program: str = "main",
    *,
    threads: int = 1,
    seconds: float = 3.0,
    allow_unsigned: bool | None = None,
) -> Measurement:
    """Time a program on the largest of its golden inputs, in this process, for `seconds`.

    One earlier call is not counted. Raise ArtifactError if the bundle breaks the format,
    SessionError if it cannot run here, UsageError if it has no such program.
    """
    session, run, case = _ready(folder, program, threads, allow_unsigned)
    with session:
        return latency(run, seconds=seconds, threads=threads, case=case)


def measure_kernels(
    folder: Path, program: str = "main", *, threads: int = 1, seconds: float = 3.0
) -> Profile:
    """Time each kernel of a CPU program on its largest golden inputs, like `measure`."""
    session, run, _ = _ready(folder, program, threads, None)
    with session:
        return profile(session, run, threads=threads, seconds=seconds)


def is_emulated(folder: Path) -> bool:
    """Return whether an emulator's times are measured; ArtifactError for a malformed bundle."""
    return emulates(open_bundle(folder, check_hashes=False).manifest.requires)


def _ready(
    folder: Path, program: str, threads: int, allow_unsigned: bool | None, case: int | None = None
) -> tuple[Session, Callable[[], object], int]:
    """Return a session, its call on a golden case, by default the largest, and the case."""
    bundle = open_bundle(folder, check_hashes=False)
    programs = {each.name: each for each in bundle.manifest.programs}
    if program not in programs:
        fact = f"has no program {program!r}"
        raise UsageError(str(folder), fact, f"It has: {', '.join(programs)}. Name one by --program")
    goldens = GoldenCases(bundle.file(programs[program].golden.path), programs[program])
    case = goldens.largest() if case is None else case
    inputs = goldens.inputs(case)
    session = Session(folder, program, threads, allow_unsigned=allow_unsigned)
    return session, from_the_start(session, inputs), case


def time_in_turns(
    sides: Sequence[Callable[[], Turn]], *, seconds: float, threads: int, case: int | None = None
) -> list[Measurement]:
    """Let each side take turns repeatedly, after one turn that is not counted.

    It takes `seconds`: at least one round, and three unless they take twice as long, since
    calls of many seconds differ little from each other. It ends earlier if the medians of each
    side's last six turns are within 2 % of each other. Threads and golden case are only recorded.
    """
    for side in sides:
        side()
    rounds: list[list[Turn]] = []
    begun = time.perf_counter()
    while _more_rounds(rounds, time.perf_counter() - begun, seconds):
        rounds.append([side() for side in sides])
    return [measurement(turns, threads=threads, case=case) for turns in zip(*rounds, strict=True)]


def _more_rounds(rounds: Sequence[Sequence[Turn]], passed: float, seconds: float) -> bool:
    if len(rounds) < _FEWEST_TURNS:
        return not rounds or passed < _PATIENCE * seconds
    return passed < seconds and not _is_steady(rounds[-_STEADY_TURNS:])


def _is_steady(rounds: Sequence[Sequence[Turn]]) -> bool:
    medians = [
        [statistics.median(turn.wall_ms) for turn in side] for side in zip(*rounds, strict=True)
    ]
    return len(rounds) == _STEADY_TURNS and all(max(m) <= _STEADY * min(m) for m in medians)


class Partner:
    """A process, whose command calls `serve`, that takes a turn on request."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        # In this process's group, so that signals and priorities of this one reach it as well.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/" if environment is not None else None,  # Python 3.10 looks for modules there
            text=True,
        )
        self._requests = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)

    def turn(self) -> Turn:
        """Request a turn; raise SessionError if the process ends or is silent for five minutes."""
        with contextlib.suppress(BrokenPipeError):  # reading reports it
            self._requests.write("\n")
            self._requests.flush()
        ready = select.select([self._answers], [], [], _MOST_SECONDS)[0]
        line = self._answers.readline() if ready else ""
        try:
            return from_json(Turn, line)
        except Malformed as error:
            fact = "its process gave no answer while it was timed"
            raise SessionError(self._name, fact) from error

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def artifact(bundle: Path, program: str, case: int, threads: int) -> Iterator[Partner]:
    """Start a process without torch that runs a bundle's program on one of its golden cases."""
    place = [str(bundle.absolute()), program, str(case), str(threads)]
    command = [sys.executable, "-m", "menagerie.timing", *place]
    partner = Partner(f"program {program}", command, clean_environment())
    try:
        yield partner
    finally:
        partner.close()


def serve(load: Callable[[], Callable[[], object]]) -> None:
    """Take a turn of the call that `load` returns for every line of standard input; answer it."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        run = load()
        for _ in sys.stdin:
            answers.write(json.dumps(asdict(take_turn(run))) + "\n")
            answers.flush()


def _program() -> Callable[[], object]:
    """Return a call of the program in the command line on its golden case."""
    folder, name, case, threads = sys.argv[1:]
    return _ready(Path(folder), name, int(threads), allow_unsigned=True, case=int(case))[1]


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(_program)
