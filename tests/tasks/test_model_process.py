"""A model in its own process: answers come through, crashes are named, nothing is left behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tasks.failures import ProcessDied, StageTimedOut, is_transient
from tasks.forking import _ONE_THREAD, Child, ForkServer, spawn
from tasks.model_process import ModelProcess
from tasks.stage_table import EXPORT, LOCATE, LOWER, PULL, TRANSFORM
from zoo.errors import HashMismatch, LoweringError, SourceError
from zoo.progress import StepDone, progress_to
from zoo.records import Diagnosis

if TYPE_CHECKING:
    from tasks.job import Job

Start = Callable[[str, Path], Child]
HERE = Path(__file__).parent
SERVERS: list[ForkServer] = []


def spawned(_kind: str, log: Path) -> Child:
    """A fake model in a process that begins from nothing."""
    return spawn((sys.executable, str(HERE / "fake_model_process.py")), log)


def fork_server(*command: str) -> ForkServer:
    """A server that ends with the test, by default of fake models."""
    SERVERS.append(
        ForkServer(
            (sys.executable, *(command or [str(HERE / "fake_fork_server.py")])),
            Path(os.environ["MENAGERIE_HOME"], "server.log"),
        )
    )
    return SERVERS[-1]


def forked(kind: str, log: Path) -> Child:
    """A fake model in a process that is forked off a server of its own."""
    return fork_server().fork(kind, log)


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    while SERVERS:
        SERVERS.pop().kill()


_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture(params=[spawned, pytest.param(forked, marks=_linux)], ids=lambda way: way.__name__)
def start(request: pytest.FixtureRequest) -> Start:
    """Each way in which a process can begin."""
    way: Start = request.param
    return way


@pytest.fixture
def log(job: Job) -> Path:
    """The model's log file; its folder does not exist yet."""
    return job.log


def asking(job: Job, summary: str) -> Job:
    """The job for which the fake model behaves as `summary` says."""
    return job.model_copy(update={"spec": job.spec.model_copy(update={"summary": summary})})


def test_a_stage_answers_from_another_process(job: Job, log: Path, start: Start) -> None:
    """The record is the child's, and what libraries print goes to the log alone."""
    with ModelProcess(job, start=start) as model:
        pulled = model.run(PULL)
        exported = model.run(EXPORT)
    assert int(pulled.source) != os.getpid()
    assert pulled.random_weights == 0
    assert exported.programs == ("main",)
    assert "a library that talks" in log.read_text()


def test_steps_of_a_stage_arrive_here(job: Job, start: Start) -> None:
    """In their order and before the record, though both may come in one piece."""
    reported: list[StepDone] = []
    with ModelProcess(job, start=start) as model, progress_to(reported.append):
        model.run(PULL)
        assert model.run(EXPORT).programs
    texts = [(step.text, step.share) for step in reported]
    assert texts == [("program main: traced", 0.5), ("program main: exported", 1.0)]


def test_keys_to_store_and_server_are_not_lent(
    job: Job, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's own code may run there; what sources and compilers need is there all the same."""
    withheld = {
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "PREFECT_API_AUTH_STRING",
        "PREFECT_API_KEY",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
    }
    lent = {"HF_TOKEN", "HF_HOME", "HTTPS_PROXY", "CXX", "MENAGERIE_DEBUG"}
    for name in withheld | lent:
        monkeypatch.setenv(name, "x")
    with ModelProcess(asking(job, "environment"), start=start) as model:
        names = set(model.run(PULL).source.split())
    assert not names & withheld
    assert names >= lent | {"MENAGERIE_HOME", "PATH"}


def test_errors_arrive_as_themselves(job: Job, log: Path, start: Start) -> None:
    """Class, words and the worth of another try cross over; the traceback stays in the log."""
    with (
        ModelProcess(asking(job, "wrong hash"), start=start) as model,
        pytest.raises(HashMismatch, match=r"^weights: have another sha256. Look at them$"),
    ):
        model.run(PULL)
    assert "Traceback" in log.read_text()
    with (
        ModelProcess(asking(job, "unsupported"), start=start) as model,
        pytest.raises(LoweringError, match="aoti_torch_cpu_cos"),
    ):
        model.run(PULL)
    with (
        ModelProcess(asking(job, "unreachable"), start=start) as model,
        pytest.raises(SourceError) as caught,
    ):
        model.run(PULL)
    assert is_transient(caught.value)


def test_a_failed_stage_can_be_tried_again(job: Job, start: Start) -> None:
    """The process outlives a failure, so that a retry finds it."""
    with ModelProcess(asking(job, "wrong hash"), start=start) as model:
        for _ in range(2):
            with pytest.raises(HashMismatch):
                model.run(PULL)
        assert model.run(EXPORT).programs


def test_a_crash_is_an_error_that_names_signal_and_log(job: Job, log: Path, start: Start) -> None:
    """SIGSEGV in a stage ends that process, not this one."""
    with ModelProcess(job, start=start) as model:
        model.run(PULL)
        with pytest.raises(ProcessDied) as caught:
            model.run(TRANSFORM)
        with pytest.raises(ProcessDied):  # and stays dead
            model.run(LOWER)
    assert str(caught.value) == f"toy: its process died in transform (SIGSEGV). See {log}"


def test_suspects_cross_over(job: Job, start: Start) -> None:
    """The search is given what to look at; its diagnosis comes back."""
    asked = (("main", 1), ("decoder", None))
    with ModelProcess(job, start=start) as model:
        assert model.run(LOCATE, asked) == Diagnosis(detail="main 1, decoder None")


def test_the_cause_of_a_crash_crosses_over(job: Job, start: Start) -> None:
    """A node that ends in an error is infinitely far off, and JSON has no infinity."""
    with ModelProcess(asking(job, "crashing"), start=start) as model:
        found = model.run(LOCATE, [("main", 0)])
    assert found.divergence is not None
    assert (found.divergence.max_abs, found.divergence.snr_db) == (math.inf, -math.inf)
    assert (found.program, found.case, found.divergence.node) == ("main", 0, "conv2d")
    assert found.divergence.reproducer == Path("found")


def test_a_signal_without_a_name_is_named_by_its_number(job: Job, start: Start) -> None:
    """Real-time signals have none, but the first and the last."""
    number = signal.SIGRTMIN + 1
    with (
        ModelProcess(asking(job, "nameless"), start=start) as model,
        pytest.raises(ProcessDied, match=rf"died in transform \(signal {number}\)"),
    ):
        model.run(TRANSFORM)


def test_a_search_without_end_is_stopped(
    job: Job, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some time after its own limit, the process is ended; the error says so."""
    monkeypatch.setattr("tasks.model_process._GRACE", 0.2)
    endless = asking(job, "searching").model_copy(update={"search_seconds": 0.0})
    with (
        ModelProcess(endless, start=start) as model,
        pytest.raises(StageTimedOut, match=r"locate was stopped after 0\.2 s"),
    ):
        model.run(LOCATE, [("main", 0)])


def test_stopping_all_ends_compilers_too(job: Job, start: Start) -> None:
    """A caller that waits for a stage learns that it died, and no grandchild survives."""
    with ModelProcess(job, start=start) as model, ThreadPoolExecutor(1) as pool:
        model.run(PULL)
        lowering = pool.submit(model.run, LOWER)
        compiler = psutil.Process(_written(job.folder / "child"))
        ModelProcess.stop_all()
        with pytest.raises(ProcessDied, match=r"lower \(SIGKILL\)\. Most likely the memory"):
            lowering.result(timeout=60)
    assert _ended(compiler)


def test_a_killed_parent_takes_the_bench_along(job: Job, log: Path, start: Start) -> None:
    """SIGKILL of the command that converts leaves neither model nor compiler running."""
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from test_model_process import {start.__name__} as start
from tasks.model_process import ModelProcess
from tasks.job import Job
from tasks.stage_table import LOWER, PULL
job = Job.model_validate_json(Path({str(log.parent.parent / "job")!r}).read_text())
with ModelProcess(job, start=start) as model:
    print(model.run(PULL).source, flush=True)
    model.run(LOWER)
"""
    (log.parent.parent / "job").write_text(job.model_dump_json())
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        model = psutil.Process(int(parent.stdout.readline()))
        children = psutil.Process(parent.pid).children()
        compiler = psutil.Process(_written(job.folder / "child"))
        parent.kill()
    assert _ended(model)
    assert _ended(compiler)
    assert model in children  # beside it, the server that forked it
    assert len(children) == (1 if start is spawned else 2)
    assert all(map(_ended, children))


def test_a_forked_process_has_what_its_server_loaded(job: Job) -> None:
    """A library that was loaded for an earlier one is there without being loaded again."""
    server = fork_server()
    server.load("xml.dom.minidom")
    for _ in range(2):
        with ModelProcess(asking(job, "modules"), start=server.fork) as model:
            assert "xml.dom.minidom" in model.run(PULL).source.split()


def test_a_server_that_dies_is_the_end_of_what_it_has_not_forked(job: Job, log: Path) -> None:
    """The first stage says so; what it forked before goes on."""
    server = fork_server()
    with ModelProcess(job, start=server.fork) as early:
        early.run(PULL)
        assert server.runs()
        with (
            ModelProcess(job, start=lambda _, log: server.fork("dying", log)) as late,
            pytest.raises(ProcessDied, match=r"died in pull \(SIGKILL\)"),
        ):
            late.run(PULL)
        assert early.run(EXPORT).programs
    assert not server.runs()


def test_a_process_is_ended_before_it_was_forked(job: Job) -> None:
    """It ends as it begins, and what else waits for the server is served."""
    server = fork_server()
    busy = psutil.Process(server._process.pid)
    busy.suspend()
    ended = ModelProcess(job, start=server.fork)
    with ModelProcess(job, start=server.fork) as other:
        with ended, ThreadPoolExecutor(1) as pool:
            killed = pool.submit(ended.kill)
            while not ended._requests.closed:
                os.sched_yield()
            busy.resume()
            killed.result(timeout=60)
            with pytest.raises(ProcessDied):
                ended.run(PULL)
        assert other.run(PULL).parameters == 3


def test_a_server_that_hangs_is_not_waited_for(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, and what it was asked has never begun."""
    monkeypatch.setattr("tasks.forking._PATIENCE", 0.2)
    server = fork_server("-c", "import signal; signal.pause()")
    with ModelProcess(job, start=server.fork) as model:
        model.kill()
        with pytest.raises(ProcessDied):
            model.run(PULL)
    assert not server.runs()


def test_a_process_that_is_ended_twice_or_while_another_waits_ends(job: Job, start: Start) -> None:
    """As the stopping of a run does, from another thread, at any moment."""
    for _ in range(5):
        with ModelProcess(job, start=start) as model, ThreadPoolExecutor(4) as pool:
            model.run(PULL)
            waiting = [pool.submit(model._process.wait) for _ in range(2)]
            killing = [pool.submit(model.kill) for _ in range(4)]
            assert [each.result(timeout=60) for each in killing] == [None] * 4
            assert [each.result(timeout=60) for each in waiting] == [-signal.SIGKILL] * 2
            model.kill()


def test_a_model_goes_on_without_its_server(job: Job) -> None:
    """Memory that runs out may end the server first; the model ends with the block as ever."""
    with ModelProcess(job, start=forked) as model:
        process = psutil.Process(int(model.run(PULL).source))
        SERVERS[-1].kill()
        assert model.run(EXPORT).programs
        process.kill()
        with pytest.raises(ProcessDied, match="SIGKILL"):
            model.run(LOWER)
    with ModelProcess(job, start=forked) as model:
        process = psutil.Process(int(model.run(PULL).source))
        SERVERS[-1].kill()
    assert _ended(process)


def test_a_model_is_ended_though_its_server_hangs(job: Job) -> None:
    """It may be busy with what it was asked to load, for ever."""
    server = fork_server()
    with ModelProcess(job, start=server.fork) as model:
        process = psutil.Process(int(model.run(PULL).source))
        psutil.Process(server._process.pid).suspend()
    assert _ended(process)


def test_models_of_a_retired_server_go_on(job: Job) -> None:
    """The server itself ends as soon as it has forked what was requested."""
    server = fork_server()
    process = psutil.Process(server._process.pid)
    with ModelProcess(job, start=server.fork) as model:
        server.load("asyncio")  # it is busy at the last request
        with ModelProcess(job, start=server.fork) as last:
            server.retire()
            assert last.run(PULL).parameters == 3
        assert _ended(process)
        assert model.run(PULL).parameters == 3
        assert model.run(EXPORT).programs


@_linux
def test_no_compiler_of_a_killed_model_is_left_as_a_zombie(job: Job) -> None:
    """They are inherited when their model is ended, and a process has to wait for them."""
    server = fork_server()
    for _ in range(2):
        (job.folder / "child").unlink(missing_ok=True)
        with ModelProcess(job, start=server.fork) as model, ThreadPoolExecutor(1) as pool:
            model.run(PULL)
            lowering = pool.submit(model.run, LOWER)
            compiler = psutil.Process(_written(job.folder / "child"))
            model.kill()
            with pytest.raises(ProcessDied):
                lowering.result(timeout=60)
        end = time.monotonic() + 60
        while psutil.pid_exists(compiler.pid):
            assert time.monotonic() < end
            with ModelProcess(job, start=server.fork) as model:  # as the next model does
                model.run(PULL)


def test_a_server_fits_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not fit another folder, or an environment that changed."""
    server = fork_server()
    assert server.fits()
    monkeypatch.setenv("PREFECT_API_KEY", "never lent")
    assert server.fits()
    monkeypatch.setenv("CXX", "another")
    assert not server.fits()
    monkeypatch.delenv("CXX")
    monkeypatch.chdir(tmp_path)
    assert not server.fits()


def test_the_server_has_one_thread_whatever_it_loads() -> None:
    """A fork keeps no other; those of a library would be gone, and waiting for them would hang."""
    program = """
import os
from tasks import serve_model
for kind in ("torchvision", "transformers", "checkpoint", "factory"):
    serve_model.load(kind)
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **_ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"


def _written(file: Path) -> int:
    """The number that another process writes to `file` as soon as it gets there."""
    end = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end, f"{file} was never written"
        os.sched_yield()
    return int(file.read_text())


def _ended(process: psutil.Process) -> bool:
    """Whether it ends within a minute; a zombie that is not reaped has ended too."""
    end = time.monotonic() + 60
    with suppress(psutil.NoSuchProcess):  # between two questions
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > end:
                return False
            os.sched_yield()
    return True


def test_a_process_switches_to_the_next_target(job: Job, start: Start, tmp_path: Path) -> None:
    """It is the same one, asked with the next job, and writes into the log of that."""
    other = job.model_copy(update={"target": "metal", "log": tmp_path / "more" / "metal.log"})
    with ModelProcess(job, start=start) as model:
        first = model.run(PULL).source
        before = job.log.read_text()
        assert model.switch_to(other)
        assert model.run(PULL).source == first
        model.run(EXPORT)
    assert job.log.read_text() == before
    assert "a library that talks" in other.log.read_text()


@pytest.mark.parametrize("change", [{"model": "other"}, {"seed": 7}, {"allow_factories": True}])
def test_a_process_does_not_switch_to_another_model(
    job: Job, start: Start, change: dict[str, object]
) -> None:
    """Nor to other weights of the same."""
    with ModelProcess(job, start=start) as model:
        assert not model.switch_to(job.model_copy(update=change))


def test_a_process_that_ended_switches_to_nothing(job: Job, start: Start) -> None:
    """The caller starts another."""
    with ModelProcess(job, start=start) as model:
        model.run(PULL)
        model.kill()
        model._process.wait()
        assert not model.switch_to(job)
