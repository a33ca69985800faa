"""Real libraries that crash, hang, hoard and lie: each is a verdict, and the caller lives."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import menagerie
from menagerie.format.folder import open_bundle, seal
from menagerie.validation import Limits, sandbox, validate
from menagerie.validation.findings import Verdict
from menagerie.validation.sandbox import landlock_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from menagerie.validation.findings import ValidationReport

    MakeBundle = Callable[..., Path]

QUICK = Limits(seconds=60, threads=1, measure_seconds=0)


def tried(bundle: Path, limits: Limits = QUICK) -> ValidationReport:
    """Validates without measuring; asserts that no process of the trial is left."""
    report = validate(bundle, limits=limits)
    assert all(ends(process) for process in processes_of(bundle))
    return report


def ends(process: int) -> bool:
    """Whether a process that may have been killed a moment ago is gone within 20 seconds."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    with os.fdopen(handle):
        return bool(select.select([handle], [], [], 20)[0])


def processes_of(bundle: Path) -> list[int]:
    """Ids of the processes that were started for a bundle."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
            if str(bundle).encode() in command and b"worker" in command:
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def test_a_sound_bundle_passes(make_bundle: MakeBundle, misdeed: type) -> None:
    """Every case is compared, and speed, memory, machine and runtime are measured."""
    bundle = make_bundle(main=[misdeed.NONE] * 3)
    report = tried(bundle, Limits(seconds=60, threads=1, measure_seconds=0.05))
    assert (report.verdict, report.detail) == (Verdict.PASSED, "")
    (program,) = report.programs
    assert [p.case for p in program.parity] == [0, 1, 2]
    assert all(p.passed and p.max_abs == 0 for p in program.parity)
    assert program.deterministic
    assert program.latency is not None
    assert (program.latency.threads, program.latency.case) == (1, 0)
    assert program.profile is not None
    assert report.peak_memory_bytes is not None
    assert report.peak_memory_bytes < 128 << 20  # without what its probe of the machine takes
    assert 0 < program.latency.minimum_ms <= program.latency.median_ms <= program.latency.p90_ms
    assert report.load_ms is not None
    assert report.load_ms > 0
    assert report.second_model_coexists
    assert report.runtime == menagerie.version()
    assert report.machine


@pytest.mark.skipif(not landlock_version(), reason="the kernel has no Landlock")
def test_a_sound_bundle_passes_without_namespaces(
    make_bundle: MakeBundle, misdeed: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under Landlock and seccomp a library is loaded and runs as it does elsewhere."""
    monkeypatch.setattr(sandbox, "_bubblewrap", lambda: None)
    report = tried(make_bundle(main=[misdeed.NONE] * 2))
    assert (report.verdict, report.detail) == (Verdict.PASSED, "")
    assert report.sandbox == sandbox.LANDLOCK


def test_the_callers_memory_is_not_counted(make_bundle: MakeBundle, misdeed: type) -> None:
    """Peak memory is the trial's own, however large the process that started it."""
    ballast = bytearray(os.urandom(1)) * (300 << 20)
    report = tried(make_bundle(main=[misdeed.NONE]))
    assert report.peak_memory_bytes is not None
    assert 5 << 20 < report.peak_memory_bytes < len(ballast)


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("SEGMENTATION_FAULT", "killed by SIGSEGV in program main, case 1"),
        ("ABORT", "killed by SIGABRT in program main, case 1"),
        ("EXIT_QUIETLY", "ended with exit code 0 in program main, case 1"),
    ],
)
def test_a_crash_names_signal_program_and_case(
    make_bundle: MakeBundle, misdeed: type, name: str, detail: str
) -> None:
    """A dead worker is a verdict that says what killed it and where."""
    report = tried(make_bundle(main=[misdeed.NONE, misdeed[name]]))
    assert (report.verdict, report.detail) == (Verdict.CRASHED, detail)
    assert report.machine


def test_what_was_proven_before_a_crash_is_kept(make_bundle: MakeBundle, misdeed: type) -> None:
    """The judgement of an earlier program survives the crash of a later one."""
    report = tried(make_bundle(first=[misdeed.NONE], second=[misdeed.SEGMENTATION_FAULT]))
    assert report.detail == "killed by SIGSEGV in program second, case 0"
    assert [(p.program, p.passed) for p in report.programs] == [("first", True)]


def test_a_crash_at_unload_is_a_crash(make_bundle: MakeBundle, misdeed: type) -> None:
    """An artifact that gives right answers and then dies at closing is not sound."""
    report = tried(make_bundle(main=[misdeed.CRASH_AT_UNLOAD]))
    assert report.verdict is Verdict.CRASHED
    assert report.detail.startswith("killed by SIGSEGV ")


def test_a_hang_times_out_and_leaves_nothing_behind(make_bundle: MakeBundle, misdeed: type) -> None:
    """An endless loop ends at the limit, with the child that the library forked."""
    bundle = make_bundle(main=[misdeed.SPIN_BESIDE_A_CHILD])
    report = tried(bundle, replace(QUICK, seconds=5.0))
    assert report.verdict is Verdict.TIMED_OUT
    assert report.detail == "not done after 5 s in program main, case 0"


def test_hoarding_memory_ends_at_the_limit(make_bundle: MakeBundle, misdeed: type) -> None:
    """An artifact that allocates for ever fails at its own limit, not at the machine's."""
    bundle = make_bundle(main=[misdeed.HOARD_MEMORY])
    report = tried(bundle, replace(QUICK, memory_bytes=512 << 20))
    assert report.verdict is Verdict.CRASHED
    assert report.detail == "killed by SIGSEGV in program main, case 0"


def test_nan_diverges(make_bundle: MakeBundle, misdeed: type) -> None:
    """The first output out of tolerance is named with its case and the worst element."""
    report = tried(make_bundle(main=[misdeed.NONE, misdeed.GIVE_NAN]))
    assert report.verdict is Verdict.DIVERGED
    assert report.detail == (
        "program main, case 1, output y: NaN or infinity where eager has none, or the reverse; "
        "worst at [0, 1]: eager -2, artifact nan"
    )
    assert [p.passed for p in report.programs[0].parity] == [True, False]


def test_changing_results_diverge(make_bundle: MakeBundle, misdeed: type) -> None:
    """Two runs of one input must give the same bits."""
    report = tried(make_bundle(main=[misdeed.CHANGE_EVERY_RUN]))
    assert report.verdict is Verdict.DIVERGED
    assert not report.programs[0].deterministic


def test_sessions_that_disturb_each_other_diverge(make_bundle: MakeBundle, misdeed: type) -> None:
    """A result that depends on how many sessions are open is found out."""
    report = tried(make_bundle(main=[misdeed.COUNT_CONTAINERS]))
    assert report.verdict is Verdict.DIVERGED
    assert report.programs[0].deterministic
    assert report.second_model_coexists is False


def test_an_error_of_the_library_is_a_refusal(make_bundle: MakeBundle, misdeed: type) -> None:
    """What the runtime raises is the verdict's detail, with the place."""
    report = tried(make_bundle(main=[misdeed.RETURN_AN_ERROR]))
    assert report.verdict is Verdict.REFUSED
    assert report.detail.startswith("program main, case 0: ")
    assert "the rogue refuses" in report.detail


def test_libtorch_in_the_process_is_refused(make_bundle: MakeBundle, misdeed: type) -> None:
    """An artifact that pulls libtorch in is not free of PyTorch, whatever it computes."""
    report = tried(make_bundle(main=[misdeed.LOAD_LIBTORCH]))
    assert report.verdict is Verdict.REFUSED
    assert "libtorch_cpu.so is loaded" in report.detail


def test_scribbling_into_the_pipe_forges_nothing(make_bundle: MakeBundle, misdeed: type) -> None:
    """Lines that are no events are passed over."""
    assert tried(make_bundle(main=[misdeed.SCRIBBLE_ON_ALL_FILES])).passed


def test_a_damaged_bundle_is_refused_before_it_is_loaded(
    make_bundle: MakeBundle, misdeed: type
) -> None:
    """A flipped byte in the library is found by its hash; its code never runs."""
    bundle = make_bundle(main=[misdeed.NONE])
    library = bundle / "programs" / "main" / "model.so"
    content = bytearray(library.read_bytes())
    content[-1] ^= 1
    library.write_bytes(content)
    report = tried(bundle)
    assert report.verdict is Verdict.REFUSED
    assert "model.so: its sha256 is not the one that was sealed" in report.detail


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\xff" * 64])
def test_broken_goldens_are_refused(make_bundle: MakeBundle, misdeed: type, content: bytes) -> None:
    """Golden files that do not parse are a refusal even in a properly sealed bundle."""
    bundle = make_bundle(main=[misdeed.NONE])
    manifest = open_bundle(bundle).manifest
    (bundle / "programs" / "main" / "golden.safetensors").write_bytes(content)
    seal(bundle, manifest)
    report = tried(bundle)
    assert report.verdict is Verdict.REFUSED
    assert "golden.safetensors: not readable as safetensors" in report.detail


def test_no_bundle_is_refused(tmp_path: Path) -> None:
    """A folder that is not there is a verdict too, for the caller judges many."""
    report = tried(tmp_path / "nothing")
    assert report.verdict is Verdict.REFUSED
    assert "there is no such folder" in report.detail


@pytest.mark.parametrize(
    ("labels", "eager", "passed"),
    [([0, 1, 2, 3, 1], 1.0, True), ([0, 1, 2, 3, 1], 0.8, False), ([0, 1, 2, 3, 5], 0.8, True)],
)
def test_the_accuracy_gate_must_equal_eagers(
    make_bundle: MakeBundle, misdeed: type, labels: Sequence[int], eager: float, passed: bool
) -> None:
    """Five samples in batches of two; a label of 5 among four classes is never predicted."""
    report = tried(make_bundle(gate=(labels, eager), main=[misdeed.NONE]))
    assert report.passed is passed
    assert report.accuracy is not None
    assert report.accuracy.samples == 5
    assert report.accuracy.artifact == sum(label < 4 for label in labels) / 5
    if not passed:
        assert report.detail == "program main: accuracy 1 on 5 samples is not eager's 0.8"


def test_steps_are_reported_in_order(make_bundle: MakeBundle, misdeed: type) -> None:
    """Progress names the step that is about to begin."""
    steps: list[str] = []
    validate(make_bundle(main=[misdeed.NONE] * 2), limits=QUICK, progress=steps.append)
    assert steps[:4] == [
        "opening the bundle",
        "loading program main",
        "program main, case 0",
        "program main, case 1",
    ]


def test_an_interrupt_ends_the_worker(make_bundle: MakeBundle, misdeed: type) -> None:
    """What the caller raises while it listens goes through, and the worker goes with it."""

    def interrupt(step: str) -> None:
        if step == "program main, case 0":
            raise KeyboardInterrupt

    bundle = make_bundle(main=[misdeed.PAUSE])
    with pytest.raises(KeyboardInterrupt):
        validate(bundle, limits=QUICK, progress=interrupt)
    assert all(ends(process) for process in processes_of(bundle))


CALLER = """
import sys
from pathlib import Path
from menagerie.validation import Limits, sandbox, validate
from menagerie.validation.sandbox import landlock_version
validate(Path(sys.argv[1]), limits=Limits(seconds=120), progress=lambda s: print(s, flush=True))
"""


def test_a_killed_caller_leaves_no_worker(make_bundle: MakeBundle, misdeed: type) -> None:
    """SIGKILL of the caller while the artifact hangs ends the worker at once."""
    bundle = make_bundle(main=[misdeed.PAUSE])
    root = Path(menagerie.__file__).parents[1]
    command = [sys.executable, "-c", CALLER, str(bundle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as caller:
        assert caller.stdout is not None
        assert any(line == "program main, case 0\n" for line in caller.stdout)
        workers = processes_of(bundle)  # the sandbox, where there is one, and what runs in it
        assert workers
        caller.send_signal(signal.SIGKILL)
    assert all(map(ends, workers))
