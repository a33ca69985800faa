"""A model in its own process: answers come through, crashes are named, nothing is left behind."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tasks.failures import ProcessDied, StageTimedOut, is_transient
from tasks.job import Suspect
from tasks.model_process import ModelProcess
from tasks.stages import EXPORT, LOCATE, LOWER, PULL, TRANSFORM
from zoo.errors import HashMismatch, LoweringError, SourceError
from zoo.records import Diagnosis

if TYPE_CHECKING:
    from tasks.job import Job

FAKE = (sys.executable, str(Path(__file__).with_name("fake_model_process.py")))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The model's log file; its folder does not exist yet."""
    return tmp_path / "logs" / "toy.log"


def asking(job: Job, summary: str) -> Job:
    """The job for which the fake model behaves as `summary` says."""
    return job.model_copy(update={"spec": job.spec.model_copy(update={"summary": summary})})


def test_a_stage_answers_from_another_process(job: Job, log: Path) -> None:
    """The record is the child's, and what libraries print goes to the log alone."""
    with ModelProcess(job, log, command=FAKE) as model:
        pulled = model.run(PULL)
        exported = model.run(EXPORT)
    assert int(pulled.source) != os.getpid()
    assert pulled.random_weights == 0
    assert exported.programs[0].golden_cases == 3
    assert "a library that talks" in log.read_text()


def test_keys_to_store_and_server_are_not_lent(
    job: Job, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's own code may run there; what sources and compilers need is there all the same."""
    withheld = {
        "MENAGERIE_S3_ACCESS_KEY",
        "MENAGERIE_S3_SECRET_KEY",
        "MENAGERIE_POSTGRES",
        "MENAGERIE_SWIFT_SECRET",
        "PREFECT_API_AUTH_STRING",
        "PREFECT_API_KEY",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
    }
    lent = {"HF_TOKEN", "HF_HOME", "HTTPS_PROXY", "CXX", "MENAGERIE_CLUSTER"}
    for name in withheld | lent:
        monkeypatch.setenv(name, "x")
    with ModelProcess(asking(job, "environment"), log, command=FAKE) as model:
        names = set(model.run(PULL).source.split())
    assert not names & withheld
    assert names >= lent | {"MENAGERIE_HOME", "PATH"}


def test_errors_arrive_as_themselves(job: Job, log: Path) -> None:
    """Class, words and the worth of another try cross over; the story stays in the log."""
    with (
        ModelProcess(asking(job, "wrong hash"), log, command=FAKE) as model,
        pytest.raises(HashMismatch, match=r"^weights: have another sha256. Look at them$"),
    ):
        model.run(PULL)
    assert "Traceback" in log.read_text()
    with (
        ModelProcess(asking(job, "unsupported"), log, command=FAKE) as model,
        pytest.raises(LoweringError, match="aoti_torch_cpu_cos"),
    ):
        model.run(PULL)
    with (
        ModelProcess(asking(job, "unreachable"), log, command=FAKE) as model,
        pytest.raises(SourceError) as caught,
    ):
        model.run(PULL)
    assert is_transient(caught.value)


def test_a_failed_stage_can_be_tried_again(job: Job, log: Path) -> None:
    """The process outlives a failure, so that a retry finds it."""
    with ModelProcess(asking(job, "wrong hash"), log, command=FAKE) as model:
        for _ in range(2):
            with pytest.raises(HashMismatch):
                model.run(PULL)
        assert model.run(EXPORT).programs


def test_a_crash_is_an_error_that_names_signal_and_log(job: Job, log: Path) -> None:
    """SIGSEGV in a stage ends that process, not this one."""
    with ModelProcess(job, log, command=FAKE) as model:
        model.run(PULL)
        with pytest.raises(ProcessDied) as caught:
            model.run(TRANSFORM)
        with pytest.raises(ProcessDied):  # and stays dead
            model.run(LOWER)
    assert str(caught.value) == f"toy: its process died in transform (SIGSEGV). See {log}"


def test_suspects_cross_over(job: Job, log: Path) -> None:
    """The search is told what to look at; its diagnosis comes back."""
    asked = (Suspect(program="main", case=1), Suspect(program="decoder", case=None))
    with ModelProcess(job, log, command=FAKE) as model:
        assert model.run(LOCATE, asked) == Diagnosis(detail="main 1, decoder None")


def test_the_cause_of_a_crash_crosses_over(job: Job, log: Path) -> None:
    """A node that ends in an error is infinitely far off, and JSON has no infinity."""
    with ModelProcess(asking(job, "crashing"), log, command=FAKE) as model:
        found = model.run(LOCATE, [Suspect(program="main", case=0)])
    assert found.divergence is not None
    assert (found.divergence.max_abs, found.divergence.snr_db) == (math.inf, -math.inf)
    assert (found.program, found.case, found.divergence.node) == ("main", 0, "conv2d")
    assert found.divergence.reproducer == Path("found")


def test_a_signal_without_a_name_is_told_by_its_number(job: Job, log: Path) -> None:
    """Real-time signals have none, but the first and the last."""
    number = signal.SIGRTMIN + 1
    with (
        ModelProcess(asking(job, "nameless"), log, command=FAKE) as model,
        pytest.raises(ProcessDied, match=rf"died in transform \(signal {number}\)"),
    ):
        model.run(TRANSFORM)


def test_a_search_without_end_is_stopped(
    job: Job, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some time after its own limit, the process is ended; the error says so."""
    monkeypatch.setattr("tasks.model_process._GRACE", 0.2)
    endless = asking(job, "searching").model_copy(update={"search_seconds": 0.0})
    with (
        ModelProcess(endless, log, command=FAKE) as model,
        pytest.raises(StageTimedOut, match=r"locate was stopped after 0\.2 s"),
    ):
        model.run(LOCATE, [Suspect(program="main", case=0)])


def test_stopping_all_ends_compilers_too(job: Job, log: Path) -> None:
    """Who waits for a stage learns that it died, and no grandchild survives."""
    with ModelProcess(job, log, command=FAKE) as model, ThreadPoolExecutor(1) as pool:
        model.run(PULL)
        lowering = pool.submit(model.run, LOWER)
        compiler = psutil.Process(_written(job.folder / "child"))
        ModelProcess.stop_all()
        with pytest.raises(ProcessDied, match=r"lower \(SIGKILL\)\. Most likely the memory"):
            lowering.result(timeout=60)
    assert _ended(compiler)


def test_a_killed_parent_takes_the_bench_along(job: Job, log: Path) -> None:
    """SIGKILL of the command that converts leaves neither model nor compiler running."""
    program = f"""
from pathlib import Path
from tasks.model_process import ModelProcess
from tasks.stages import EXPORT, LOCATE, LOWER, PULL, TRANSFORM
from tasks.job import Job
from tasks.stages import LOWER, PULL
job = Job.model_validate_json(Path({str(log.parent.parent / "job")!r}).read_text())
with ModelProcess(job, Path({str(log)!r}), command={FAKE!r}) as model:
    print(model.run(PULL).source, flush=True)
    model.run(LOWER)
"""
    (log.parent.parent / "job").write_text(job.model_dump_json())
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        model = psutil.Process(int(parent.stdout.readline()))
        compiler = psutil.Process(_written(job.folder / "child"))
        parent.kill()
    assert _ended(model)
    assert _ended(compiler)


def _written(file: Path) -> int:
    """The number that another process writes to `file` as soon as it gets there."""
    end = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end, f"{file} was never written"
        os.sched_yield()
    return int(file.read_text())


def _ended(process: psutil.Process) -> bool:
    """Whether it ends within a minute; a zombie that nobody reaps has ended too."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        os.sched_yield()
    return False
