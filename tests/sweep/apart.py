"""Work in a process of its own, with limits of time and memory: what crashes ends it alone."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCK = 6


@dataclass(frozen=True)
class Bounds:
    """What the work may take.

    Attributes:
        seconds: of processor time, its own and each compiler's; of the clock six times as many, as
            others may use the machine.
        gigabytes: of private memory, each process.
    """

    seconds: float
    gigabytes: float


@dataclass(frozen=True)
class Ended:
    """How the work ended.

    Attributes:
        answer: what it returned, through JSON; None if there is none.
        seconds: by the clock.
        late: whether it took more than it may.
        text: why there is no answer.
    """

    answer: Any
    seconds: float
    late: bool = False
    text: str = ""


def run_apart(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    bounds: Bounds,
    preload: str = "tests.sweep.preload",
) -> Ended:
    """Call `work(*arguments, folder)` in a new process; the folder is gone afterwards.

    Args:
        work: a function of a module; what it returns goes through JSON.
        arguments: what it gets before the folder.
        bounds: what it may take.
        preload: the module that the first call has imported for all processes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    with tempfile.TemporaryDirectory(prefix="menagerie-sweep-") as folder:
        process = context.Process(target=_child, args=(work, arguments, bounds, folder))
        began = time.monotonic()
        process.start()
        process.join(_CLOCK * bounds.seconds)
        seconds = round(time.monotonic() - began, 1)
        late = process.is_alive()
        if late:
            _end(process.pid)
            process.join()
        if late or process.exitcode == -signal.SIGXCPU:
            return Ended(None, seconds, late=True, text=f"more than {bounds.seconds:.0f} s")
        answer = Path(folder) / "answer.json"
        if not answer.exists():
            return Ended(None, seconds, text=f"exit code {process.exitcode}")
        return Ended(json.loads(answer.read_text()), seconds)


def _end(leader: int | None) -> None:
    """End a child and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        if leader is not None:
            os.killpg(leader, signal.SIGKILL)


def _child(
    work: Callable[..., Any], arguments: tuple[Any, ...], bounds: Bounds, folder: str
) -> None:
    os.setsid()
    most = int(bounds.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = math.ceil(used.ru_utime + used.ru_stime + bounds.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent + 1))
    log = os.open(Path(folder) / "log.txt", os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    warnings.simplefilter("ignore")
    answer = work(*arguments, Path(folder))
    fresh = Path(folder) / "answer.partial"
    fresh.write_text(json.dumps(answer))
    fresh.replace(Path(folder) / "answer.json")
