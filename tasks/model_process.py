"""A model in a process of its own.

A compiler that crashes, an export that eats all memory: both end that process and become the
failure of one model. It also gives back all its memory when the model is done. On Linux it is
forked off a server that has the libraries loaded; on macOS, whose system libraries do not bear a
fork (Python's documentation of multiprocessing, "contexts and start methods"), it loads them.

The two sides speak JSON, a line each: a Request at a time, and as the answer to it steps of the
stage, then its record or a Failure. All else that the process prints goes to its log file.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import weakref
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import Lock, Thread
from typing import IO, TYPE_CHECKING, ClassVar, TypeAlias, cast

from menagerie.paths import home
from menagerie.process import signal_name
from tasks.failures import Failure, ProcessDied, StageTimedOut, last_line
from tasks.job import Job, lent_environment
from tasks.stage_table import ModelHolder
from transforms.progress import StepDone, report_step
from transforms.stages import Stage
from zoo.base_models import Frozen
from zoo.records import Suspected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.stage_table import Hold, RecordT, StageKind

NUMBER = struct.Struct("=i")  # of a forked process, as it reports it

_PR_SET_CHILD_SUBREAPER = 36  # of prctl(2): orphans of our children become ours
_FORKS = sys.platform == "linux"
_LOOK_SECONDS = 1.0  # between two looks at the memory of a process at work
_GRACE = 300.0  # seconds beyond the search's own, for the lowering that was under way
_PATIENCE = 30.0  # seconds in which a server comes to what it was asked, unless it hangs
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # a fork keeps only the thread that calls it
_MEMORY_SHARE = 0.85  # of the memory there is, where nothing is said
_READ_BYTES = 2**16
_KILOBYTE = 1024  # of /proc (proc_pid_smaps(5)) and of ps
_ANONYMOUS = re.compile(r"^(?:Pss_Anon|Anonymous): +(\d+) kB", re.MULTILINE)
_LIKELY_VICTIM = "500"  # of 1000, for the kernel's choice when memory runs out


class Request(Frozen):
    """What the process is to do: a stage of the job that was named last.

    The first request names one, later ones only where it is another; `locate` alone has suspects.
    """

    job: Job | None = None
    stage: Stage
    suspects: tuple[Suspected, ...] = ()


class Answer(Frozen):
    """What the process says of a stage: steps, then its record, or why there is none."""

    step: StepDone | None = None
    record: str | None = None  # JSON as the record itself writes it, infinities included
    failure: Failure | None = None


class _Spawned(subprocess.Popen[str]):
    def kill(self) -> None:
        """End the whole group."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.pid, signal.SIGKILL)


def spawn(command: Sequence[str], log: Path) -> Child:
    """Start a process in a group of its own, whose errors go to a log file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        child = _Spawned(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=lent_environment(),
            start_new_session=True,
        )
    expendable(child.pid)
    return child


class ForkServer:
    """A process that loads libraries and is forked for each model.

    It forks twice, so that a model's process becomes a child of this one: how long the server lives
    is nothing to it, and its end is seen as that of any child.

    Args:
        command: what to start, `python -m tasks.serve_model` or one that speaks as it does.
        log: the file to which it appends what it has to say for itself.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._surroundings = Path.cwd(), lent_environment()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log.parent.mkdir(parents=True, exist_ok=True)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                env={**lent_environment(), **_ONE_THREAD},
                start_new_session=True,
            )
        expendable(self._process.pid)

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def fits(self) -> bool:
        """Whether what it forks finds itself where this process is now."""
        return self._surroundings == (Path.cwd(), lent_environment())

    def load(self, kind: str) -> None:
        """Load the library of a kind of source, for all that are forked later; OSError: it died."""
        self._control.send(kind.encode())

    def fork(self, kind: str, log: Path) -> ForkedProcess:
        """A process for a model of this kind of source, forked when its library is loaded.

        Where the server died, the process has died as well.
        """
        requests, ours = os.pipe()
        ours_too, answers = os.pipe()
        number, ended = os.pipe()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            theirs = [requests, answers, output.fileno(), ended]
            ForkedProcess.reap()
            with suppress(OSError):
                socket.send_fds(self._control, [kind.encode()], theirs)
        for fd in (requests, answers, ended):
            os.close(fd)
        return ForkedProcess(self, os.fdopen(ours, "w"), os.fdopen(ours_too), number)

    def retire(self) -> None:
        """Let it end when it has done what it was asked; a thread waits for that."""
        self._control.close()
        Thread(target=self._process.wait, daemon=True).start()

    def kill(self) -> None:
        """End it at once; what was forked goes on, what was not never will be."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class ForkedProcess:
    """A child that a server has forked, with the parts of a `subprocess.Popen` that are needed.

    As of that, threads may ask it and end it at the same time.

    Attributes:
        stdin: what the process reads.
        stdout: what it answers.
    """

    # Groups whose first process has ended: this process inherits the others, compilers mostly.
    _left: ClassVar[set[int]] = set()

    def __init__(self, server: ForkServer, stdin: IO[str], stdout: IO[str], number: int) -> None:
        self._server = server
        self.stdin = stdin
        self.stdout = stdout
        self._number = number  # its number is read here; the end of file: it was never forked
        weakref.finalize(self, os.close, number)
        self._lock = Lock()
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process and of its group; None: it was not forked yet."""
        self._await_number(0.0)
        return self._pid

    def poll(self) -> int | None:
        """How it ended, as of `subprocess.Popen.poll`."""
        self._await_number(0.0)
        with self._lock:
            if self._pid is not None and self._code is None:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
                if ended:
                    self._code = os.waitstatus_to_exitcode(status)
                    self._left.add(self._pid)
        self.reap()
        return self._code

    @classmethod
    def reap(cls) -> None:
        """Take note of what has ended after the process that started it."""
        for group in tuple(cls._left):
            try:
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:  # none is left
                cls._left.discard(group)

    def wait(self) -> int:
        """Wait until it ends; how it did."""
        self._await_number(None)
        while (code := self.poll()) is None:
            with suppress(ChildProcessError):  # another thread has waited for it
                os.waitid(os.P_PID, cast("int", self._pid), os.WEXITED | os.WNOWAIT)
        return code

    def kill(self) -> None:
        """End it and all that it started; where it was not forked yet, it ends as it begins."""
        if self.poll() is None and self._pid is None:
            with suppress(OSError):
                self.stdin.close()
            if not self._await_number(_PATIENCE):
                self._server.kill()
                self._await_number(None)
        if self.poll() is None and self._pid is not None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self._pid, signal.SIGKILL)

    def _await_number(self, seconds: float | None) -> bool:
        """Wait until it is forked or never will be; False: neither is known after so long."""
        if self._pid is None and self._code is None:
            if not select.select([self._number], [], [], seconds)[0]:
                return False
            with self._lock:
                if self._pid is None and (number := os.read(self._number, NUMBER.size)):
                    (self._pid,) = NUMBER.unpack(number)
                elif self._pid is None:
                    self._code = -signal.SIGKILL
        return True


Child: TypeAlias = _Spawned | ForkedProcess


class Servers:
    """Begins processes for models, where forks are borne by a server that is started when needed.

    Where one serves no more, another one is started.

    Args:
        command: of a server.
    """

    def __init__(self, *command: str) -> None:
        self._command = command
        self._lock = Lock()
        self._server: ForkServer | None = None
        self._one_died = False

    def begin(self, kind: str, log: Path) -> Child:
        """A process for a model of this kind of source; it starts while the caller does other work.

        The file `log` receives what the process has to say.
        """
        if _FORKS:
            return self._current().fork(kind, log)
        return spawn((sys.executable, "-m", "tasks.serve_model", kind), log)

    def load_ahead(self, kind: str) -> None:
        """Load the libraries for models of this kind of source now, while others are at work.

        Not where a server died, perhaps of what it loaded.
        """
        if _FORKS:
            with suppress(OSError):  # what cannot do without a server will say so
                server = self._current()
                if not self._one_died:
                    server.load(kind)

    def _current(self) -> ForkServer:
        with self._lock:
            last = self._server
            if last is not None and last.runs() and last.fits():
                return last
            if last is not None:
                self._one_died = self._one_died or not last.runs()
                last.retire()
            self._server = ForkServer(self._command, home() / "logs" / "fork_server.log")
            return self._server


_SERVERS = Servers(sys.executable, "-m", "tasks.serve_model", "--fork")
begin, load_ahead = _SERVERS.begin, _SERVERS.load_ahead


def memory_allowed(asked: int | None, root: Path = Path("/")) -> int:
    """Bytes that a conversion may take: what was asked for, else most of what there is.

    There is what the machine has, or less, where a container or a service is given less: beyond
    that the kernel would end whichever process it likes.

    Args:
        asked: bytes.
        root: the folder in which `proc` and `sys` lie.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return asked or int(min([machine, *_group_limits(root)]) * _MEMORY_SHARE)


def expendable(process: int) -> None:
    """Let the kernel end this process before the one that watches it, when memory runs out."""
    with suppress(OSError):  # macOS has no such thing
        Path(f"/proc/{process}/oom_score_adj").write_text(_LIKELY_VICTIM)


def group_memory(group: int) -> int:
    """Bytes of memory that the processes of a group have to themselves.

    On Linux, mapped files are left out, and of pages that forks share each has its part; elsewhere
    all count.
    """
    if sys.platform != "linux":
        return _by_ps(group)
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended in between
            if os.getpgid(int(process.name)) == group:
                found = _ANONYMOUS.search((process / "smaps_rollup").read_text())
                total += 0 if found is None else int(found[1]) * _KILOBYTE
    return total


def _group_limits(root: Path) -> Iterator[int]:
    """Bytes that this process's control groups allow, and those above them; see cgroups(7).

    A container may see its own group as the topmost folder, under whatever path it is given.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # macOS has no such thing
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        below = PurePosixPath(path.lstrip("/"))
        for group in (below, *below.parents):
            with suppress(OSError, ValueError):  # none there, or `max`
                yield int((top / group / name).read_text())


def _by_ps(group: int) -> int:
    ps = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False)  # noqa: S607 - the system's
    pairs = (line.split() for line in ps.stdout.splitlines())
    return sum(int(kib) * _KILOBYTE for pgid, kib in pairs if int(pgid) == group)


class ModelProcess(ModelHolder):
    """A model in a child process, which ends with the `with` block.

    Args:
        job: what to convert; its log receives the process's output.
        start: starts the process; it speaks the protocol above.
    """

    _alive: ClassVar[set[ModelProcess]] = set()

    def __init__(self, job: Job, *, start: Callable[[str, Path], Child] = begin) -> None:
        self._job = job
        self._named: Job | None = None  # by the last request that named one
        self._process = start(job.spec.source.kind, job.log)
        self._requests = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        self._unread = b""
        self._alive.add(self)

    @classmethod
    def stop_all(cls) -> None:
        """End all that this process started; a caller that waits for one learns that it died."""
        for process in tuple(cls._alive):
            process.kill()

    def run(self, kind: StageKind[RecordT], suspects: Sequence[Suspected] = ()) -> RecordT:
        """See `ModelHolder.run`. Ends the process where a stage does not end by itself."""
        seconds = self._job.stage_seconds
        if kind.stage is Stage.LOCATE:
            seconds = self._job.search_seconds + _GRACE
        named = None if self._job is self._named else self._job
        request = Request(job=named, stage=kind.stage, suspects=tuple(suspects))
        self._named = self._job
        with suppress(BrokenPipeError, ValueError):  # it is dead, or its file was closed to end it:
            self._requests.write(request.model_dump_json() + "\n")  # reading its answer says so
            self._requests.flush()
        end = time.monotonic() + seconds
        while (answer := self._answer(kind.stage, seconds, end)).step is not None:
            report_step(answer.step.text, answer.step.share)
        if answer.failure is not None:
            raise answer.failure.exception()
        return kind.record.model_validate_json(answer.record or "")

    def switch_to(self, job: Job) -> bool:
        """See `ModelHolder.switch_to`; the next request names the job."""
        if not job.same_model(self._job) or self._process.poll() is not None:
            return False
        job.log.parent.mkdir(parents=True, exist_ok=True)
        self._job = job
        return True

    def __exit__(self, *_: object) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait()
        self._answers.close()
        self._alive.discard(self)

    def kill(self) -> None:
        """End the process at once, with the compilers it started."""
        self._process.kill()

    def _answer(self, stage: Stage, seconds: float, end: float) -> Answer:
        """The next; a process that takes too much before it is ended.

        Not read by lines, of which some more might be read and wait unseen.
        """
        allowed = memory_allowed(self._job.memory_bytes)
        while b"\n" not in self._unread:
            if select.select([self._answers], [], [], min(_LOOK_SECONDS, seconds))[0]:
                if not (more := os.read(self._answers.fileno(), _READ_BYTES)):
                    raise self._death(stage)
                self._unread += more
                continue
            if time.monotonic() >= end:
                self.kill()
                fact = f"{stage} was stopped after {seconds:g} s"
                raise StageTimedOut(self._job.model, fact, f"What it did is in {self._job.log}")
            group = self._process.pid
            taken = 0 if group is None else group_memory(group)
            if taken > allowed:
                self.kill()
                sizes = f"{taken / 2**30:.1f} GiB of the {allowed / 2**30:.1f} GiB allowed"
                fact = f"killed: memory, {stage} took {sizes}"
                raise ProcessDied(self._job.model, fact, "Convert it on a larger machine")
        line, _, self._unread = self._unread.partition(b"\n")
        return Answer.model_validate_json(line)

    def _death(self, stage: Stage) -> ProcessDied:
        code = self._process.wait()
        how = f"exit code {code}: {last_line(self._job.log)}"
        advice = f"See {self._job.log}"
        if code < 0:
            how = signal_name(-code)
            if code == -signal.SIGKILL:
                advice = f"Most likely the memory did not suffice. {advice}"
        return ProcessDied(self._job.model, f"its process died in {stage} ({how})", advice)


@contextmanager
def shared_model(hold: Hold) -> Iterator[Hold]:
    """In the block, what holds a model goes on with its next job, unless one has failed with it.

    Args:
        hold: starts what holds the model of a job.

    Returns:
        What is to be used instead of `hold`, for one job at a time.
    """
    with ExitStack() as held:
        model: ModelHolder | None = None

        @contextmanager
        def go_on(job: Job) -> Iterator[ModelHolder]:
            nonlocal model
            if model is None or not model.switch_to(job):
                held.close()
                model = held.enter_context(hold(job))
            try:
                yield model
            except BaseException:
                model = None
                held.close()
                raise

        yield go_on
