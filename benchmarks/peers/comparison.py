"""Measurements of contenders in turns, for the tables."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers.conversions import CONVERSIONS, INT8, ONNX
from benchmarks.peers.environments import Contender, python_of
from benchmarks.peers.task import Task
from menagerie.library import native_tool
from menagerie.timing import Partner, Turn

_READS = {
    Contender.ONNXRUNTIME_INT8: Contender.ONNXRUNTIME,
    Contender.OPENVINO: Contender.ONNXRUNTIME,
    Contender.OPENVINO_INT8: Contender.ONNXRUNTIME_INT8,
    Contender.MNN: Contender.ONNXRUNTIME,
}
_FEWEST_ROUNDS = 3
_STARTED = Path(__file__).with_name("started.py")


@dataclass(frozen=True)
class Latency:
    """The times of a contender's calls.

    Attributes:
        minimum_ms: least time of a call: processor time with one thread, else wall time.
        median_ms: median of the same time.
        error: largest difference from eager's outputs, relative to their largest value.
    """

    model: str
    contender: Contender
    threads: int
    minimum_ms: float
    median_ms: float
    error: float


@dataclass(frozen=True)
class Start:
    """A fresh process, from its start to its end after the first result.

    Attributes:
        seconds: least wall time.
        processor_seconds: least processor time.
        peak_bytes: peak resident memory.
    """

    model: str
    contender: str
    seconds: float
    processor_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Conversion:
    """The conversion to the peer's own file in a fresh process, in seconds of wall time."""

    model: str
    contender: Contender
    seconds: float
    failure: str = ""  # the last line of its output


def convert(task: Task, contender: Contender) -> Conversion:
    """Make the file that a peer reads, and first the file's own inputs, unless they exist."""
    before = _READS.get(contender)
    began = time.perf_counter()
    made = task.folder / (INT8 if before is Contender.ONNXRUNTIME_INT8 else ONNX)
    if before is not None and not made.exists():
        found = convert(task, before)
        if found.failure:
            return Conversion(task.model, contender, found.seconds, found.failure)
    if contender in CONVERSIONS:
        order = [str(python_of(contender)), "-W", "ignore", "-m", "benchmarks.peers.conversions"]
        order += [contender, task.model, str(task.folder)]
        began = time.perf_counter()  # without the creation of the environment
        ended = subprocess.run(order, check=False, capture_output=True, text=True)
        if ended.returncode:
            said = [f"exit code {ended.returncode}", *ended.stderr.split("\n")]
            reason = next(line for line in reversed(said) if line.strip())[:200]
            return Conversion(task.model, contender, time.perf_counter() - began, reason)
    return Conversion(task.model, contender, time.perf_counter() - began)


def latencies(task: Task, contenders: Sequence[Contender], seconds: float) -> list[Latency]:
    """Time the contenders in turns, after one turn for warm-up.

    Raises:
        SessionError: a contender ended.
    """
    with contextlib.ExitStack() as stack:
        partners = []
        for kind in contenders:
            partner = Partner(kind, command(kind, task))
            stack.callback(partner.close)
            partner.turn()
            partners.append(partner)
        rounds: list[list[Turn]] = []
        end = time.perf_counter() + seconds
        while len(rounds) < _FEWEST_ROUNDS or time.perf_counter() < end:
            rounds.append([partner.turn() for partner in partners])
    return [
        Latency(task.model, kind, task.threads, *_costs(turns, task.threads), _error(task, kind))
        for kind, turns in zip(contenders, zip(*rounds, strict=True), strict=True)
    ]


def _costs(turns: Sequence[Turn], threads: int) -> tuple[float, float]:
    """Return the least and the median cost of calls; processor time for one thread."""
    if threads == 1:
        costs = [turn.processor_ms / len(turn.wall_ms) for turn in turns]
    else:
        costs = [wall for turn in turns for wall in turn.wall_ms]
    return min(costs), statistics.median(costs)


def _error(task: Task, kind: Contender) -> float:
    with (
        np.load(task.folder / "expected.npz") as wanted,
        np.load(task.folder / f"{kind}.npz") as made,
    ):
        return max(
            float(np.abs(made[name] - wanted[name]).max() / np.abs(wanted[name]).max())
            for name in wanted.files
        )


def start(task: Task, name: str, command: Sequence[str], times: int = 5) -> Start:
    """Time the repeated start of a command.

    Raises:
        CalledProcessError: it fails.
    """
    found = []
    for _ in range(times):
        order = [sys.executable, "-I", "-S", str(_STARTED), *command]
        printed = subprocess.run(order, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(printed))
        if found[-1]["code"] != 0:
            raise subprocess.CalledProcessError(found[-1]["code"], command)
    return Start(
        task.model,
        name,
        seconds=min(each["seconds"] for each in found),
        processor_seconds=min(each["processor_seconds"] for each in found),
        peak_bytes=max(each["peak_bytes"] for each in found),
    )


def command(kind: Contender, task: Task, *more: str) -> list[str]:
    """Return the command that starts a contender in its environment."""
    module = ["-W", "ignore", "-m", "benchmarks.peers.contenders"]
    place = [kind, task.model, str(task.threads), str(task.folder)]
    return [str(python_of(kind)), *module, *place, *more]


def start_command(task: Task, kind: Contender | None) -> tuple[str, list[str]]:
    """Return a fresh process's name and command; None is `menagerie-run`, without Python."""
    if kind is not None:
        return kind, command(kind, task, "--once")
    order = [str(native_tool()), "--no-hashes", "--allow-unsigned", "--cases", "1"]
    return "menagerie-run", [*order, "--threads", str(task.threads), str(task.bundle)]
