"""The caller's side of a validation: it starts the worker and survives the worker's crashes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from menagerie.host import machine
from menagerie.paths import PACKAGE, home
from menagerie.process import signal_name
from menagerie.trust.roots import TRUST, allows_unsigned, trusted_place
from menagerie.typed_json import Malformed, document, from_json
from menagerie.validation.findings import (
    Event,
    Limits,
    Order,
    ProgramValidation,
    ValidationReport,
    Verdict,
)
from menagerie.validation.sandbox import contained, exit_status

_READ_BYTES = 1 << 16
_MOST_LINE_BYTES = 1 << 24  # a report of thousands of outputs has a few megabytes
_STDERR_TAIL = 4096
_KEPT_VARIABLES = ("HOME", "LANG", "MENAGERIE_HOME", "TMPDIR", "XDG_CACHE_HOME", TRUST)


def validate(
    bundle: Path,
    *,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
    allow_unsigned: bool | None = None,
) -> ValidationReport:
    """Run a bundle in a fresh, confined process and judge the result.

    The process has a sandbox where there is one (`menagerie.validation.sandbox`), its own group, a
    minimal environment and bounded time and memory. A bad artifact never raises and never harms the
    caller: a crash is a verdict. `progress` is called with each step, e.g. `program main, case 1`.
    `allow_unsigned` also runs a bundle that no trusted key has signed; None: the variable
    MENAGERIE_ALLOW_UNSIGNED decides. The report's `detail` names the program and case at fault, if
    known, and the report includes programs judged before a crash. Raise OSError if the worker
    cannot be started.
    """
    limits = limits or Limits()
    events, theirs = os.pipe()
    with os.fdopen(events, "rb", buffering=0):
        try:
            process, sandbox = _start(
                bundle, limits, theirs, unsigned_too=allows_unsigned(allow_unsigned)
            )
        finally:
            os.close(theirs)
        try:
            heard = _Listener(process, events, progress)
            heard.listen(limits.seconds)
        finally:
            _end(process)
    ended = exit_status(process.returncode, sandbox)
    return replace(_judge(heard, ended, limits), sandbox=sandbox)


def _start(
    bundle: Path, limits: Limits, pipe: int, *, unsigned_too: bool
) -> tuple[subprocess.Popen[bytes], str]:
    order = Order(
        bundle=str(bundle.absolute()),
        pipe=pipe,
        limits=limits,
        allow_unsigned=unsigned_too,
        began=time.time(),
    )
    program = [sys.executable, "-m", "menagerie.validation.worker"]
    command, sandbox = contained(
        [*program, document(order).decode()],
        readable=(bundle.absolute(), trusted_place()),
        layered=(home() / "emulator",),
    )
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # closes when this process ends, which ends the worker
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(pipe,),
        env=clean_environment(),
        cwd="/",
        start_new_session=True,
    )
    return process, sandbox


def clean_environment() -> Mapping[str, str]:
    """Return only the variables that Python needs, so that an artifact cannot rely on others."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT_VARIABLES}
    return kept | {
        "PATH": os.defpath,
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONSAFEPATH": "1",  # like -P, which Python 3.10 lacks
        "OPENBLAS_NUM_THREADS": "1",  # numpy's own pool reserves memory for each core
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the worker's process group, close the worker's streams, and wait for its exit."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


@dataclass
class _Listener:
    """The state of a worker, as its events and its error output report it."""

    process: subprocess.Popen[bytes]
    pipe: int
    progress: Callable[[str], None] | None
    pending: bytes = b""
    # The worker's state so far.
    place: str = "starting"
    findings: list[ProgramValidation] = field(default_factory=list)
    report: ValidationReport | None = None
    stderr: bytes = b""
    timed_out: bool = False

    def listen(self, seconds: float) -> None:
        """Read events until the worker closes its pipe and exits, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        with DefaultSelector() as selector:
            selector.register(self.pipe, EVENT_READ, self._hear)
            if self.process.stderr is not None:
                selector.register(self.process.stderr, EVENT_READ, self._overhear)
            while self.pipe in selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    data = os.read(key.fd, _READ_BYTES)
                    key.data(data)
                    if not data:
                        selector.unregister(key.fileobj)
                if not ready:
                    break
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.timed_out = True

    def _hear(self, data: bytes) -> None:
        *lines, self.pending = (self.pending + data).split(b"\n")
        if len(self.pending) > _MOST_LINE_BYTES:
            self.pending = b""
        for line in lines:
            with contextlib.suppress(Malformed):  # the artifact may have written into the pipe
                self._take(from_json(Event, line))

    def _take(self, event: Event) -> None:
        self.place = event.step or self.place
        if event.step is not None and self.progress is not None:
            self.progress(event.step)
        self.findings += [] if event.finding is None else [event.finding]
        self.report = event.outcome or self.report

    def _overhear(self, data: bytes) -> None:
        self.stderr = (self.stderr + data)[-_STDERR_TAIL:]


def _judge(heard: _Listener, exit_code: int, limits: Limits) -> ValidationReport:
    if heard.timed_out or exit_code == -signal.SIGXCPU:
        return _failure(heard, Verdict.TIMED_OUT, f"not done after {limits.seconds:g} s")
    if exit_code < 0:
        return _failure(heard, Verdict.CRASHED, f"killed by {signal_name(-exit_code)}")
    if heard.report is not None and exit_code == 0:
        return heard.report
    words = heard.stderr.decode(errors="replace").strip().splitlines()
    last = f" ({words[-1]})" if words else ""
    return _failure(heard, Verdict.CRASHED, f"ended with exit code {exit_code}{last}")


def _failure(heard: _Listener, verdict: Verdict, fact: str) -> ValidationReport:
    link = "in" if heard.place.startswith("program") else "while"
    return ValidationReport(
        verdict=verdict,
        detail=f"{fact} {link} {heard.place}",
        programs=tuple(heard.findings),
        machine=machine(),
    )
