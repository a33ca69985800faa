"""The worker: a fresh, confined process without torch in which an artifact is tried.

`menagerie.validation.validate` starts it as ``python -m menagerie.validation.worker ORDER``, with
an `Order` as JSON. All findings go through one pipe, so the caller survives whatever the artifact
does to this process. `menagerie.validation.sandbox` protects against malice.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from menagerie.errors import ArtifactError, MenagerieError, SessionError
from menagerie.figures import count, percent
from menagerie.format.bundle_manifest import BundleProgram, Role, parse_manifest
from menagerie.format.folder import open_bundle, read_manifest
from menagerie.host import cores, emulates, machine
from menagerie.library import version
from menagerie.numerics import ANY_FINITE, Dtype
from menagerie.process import foreign_libraries, peak_memory_bytes
from menagerie.session import Session
from menagerie.speech.recipe import read_recipe
from menagerie.typed_json import from_json
from menagerie.validation.checks import (
    Judged,
    LoadedProgram,
    accuracy,
    coexists,
    judge_program,
    word_errors,
)
from menagerie.validation.findings import (
    AccuracyResult,
    Limits,
    Order,
    Sender,
    ValidationReport,
    Verdict,
    WordErrors,
)
from menagerie.validation.goldens import GoldenCases
from menagerie.validation.refuting import refute

_CASES_SHARE = 0.6  # of an emulated trial's time, for golden cases; the rest is for later checks
_LEAST_SECONDS = 0.05  # for attempts to refute a program, enough for all of a small program's


def main() -> int:
    """Try one bundle and send the report; the exit code only says that it was sent."""
    order = from_json(Order, sys.argv[1])
    _confine(order.limits)
    _die_with_caller()
    sender = Sender(order.pipe)
    sender.step("opening the bundle")
    try:
        report = _Trial(order, sender).run()
    except (MenagerieError, MemoryError) as error:
        fact = str(error) or "out of memory"
        report = ValidationReport(
            verdict=Verdict.REFUSED,
            detail=f"{sender.place}: {fact}",
            programs=tuple(sender.findings),
            machine=machine(),
            runtime=_version(Path(order.bundle)),
        )
    sender.outcome(report)
    return 0


def _confine(limits: Limits) -> None:
    """Limit this process from inside; the caller's threads forbid it between fork and exec."""
    processor = math.ceil(limits.seconds) * ((limits.threads or cores()) + 1)
    _limit(resource.RLIMIT_CPU, processor, processor + 5)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # elsewhere the kernel does not honour it
        # not RLIMIT_AS: mapped weights, twice for two sessions, take no memory
        memory = limits.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        _limit(resource.RLIMIT_DATA, memory, memory)


def _limit(which: int, soft: int, hard: int) -> None:
    """Set a limit, or keep a lower one that this process already has."""
    most = resource.getrlimit(which)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


def _die_with_caller() -> None:
    """End this process when the caller's end of standard input closes, however the caller died."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


_NOT_COUNTED = (
    "words of recordings are not counted on an emulated device: `menagerie verify` counts them on "
    "a real one"
)


def _but_for(gate: AccuracyResult | WordErrors, what: str) -> str:
    verb = "may be lost" if gate.judges else "may differ"
    return f"; {count(gate.slack, what)} {verb}" if gate.slack else ""


def _version(bundle: Path) -> str:
    """Return the runtime's version and device; empty if they cannot be determined."""
    path = bundle / "manifest.json"
    try:
        return version(parse_manifest(read_manifest(path), str(path)).runtime)
    except (MenagerieError, OSError, ValueError):
        return ""


class _Trial:
    """The trial of one bundle, from opening to accuracy; sessions stay open as in an app."""

    def __init__(self, order: Order, sender: Sender) -> None:
        self._order = order
        self._threads = order.limits.threads or cores()
        self._sender = sender
        self._bundle = open_bundle(Path(order.bundle))
        self._facts: list[str] = []  # faults found so far
        self._not_counted = ""
        timed = not emulates(self._bundle.manifest.requires)  # emulated times mean nothing
        self._seconds = order.limits.measure_seconds if timed else 0.0

    def run(self) -> ValidationReport:
        """Run all checks, each after those that it depends on."""
        manifest = self._bundle.manifest
        beside: list[str] = []
        with contextlib.ExitStack() as stack:
            start = time.perf_counter()
            sessions = {p.name: stack.enter_context(self._open(p)) for p in manifest.programs}
            load_ms = (time.perf_counter() - start) * 1e3
            programs = {p.name: self._loaded(p, sessions[p.name]) for p in manifest.programs}
            judgements = {name: self._judge(program) for name, program in programs.items()}
            peak = peak_memory_bytes()  # before profiles and second sessions take more
            for name, program in programs.items():
                self._sender.step(f"program {name}, timing its kernels")
                judgements[name].add_profile(self._seconds / 4, self._threads)
                self._sender.step(f"program {name}, a second session beside the first")
                beside.append(coexists(program, judgements[name], self._open))
            self._facts += filter(None, beside)
            self._refute(programs, judgements)
            accurate = self._accuracy(programs)
            words = self._word_errors(programs)
            self._refuse_torch()
            self._sender.step("closing the bundle")
        return ValidationReport(
            verdict=Verdict.DIVERGED if self._facts else Verdict.PASSED,
            detail=self._facts[0] if self._facts else "",
            programs=tuple(each.validation for each in judgements.values()),
            accuracy=accurate,
            word_errors=words,
            not_counted=self._not_counted,
            load_ms=load_ms,
            peak_memory_bytes=peak,
            second_model_coexists=not any(beside),
            emulated=emulates(manifest.requires),
            machine=machine(),
            runtime=_version(self._bundle.folder),
        )

    def _open(self, entry: BundleProgram) -> Session:
        self._sender.step(f"loading program {entry.name}")
        unsigned_too, folder = self._order.allow_unsigned, self._bundle.folder
        return Session(folder, entry.name, self._threads, allow_unsigned=unsigned_too)

    def _loaded(self, entry: BundleProgram, session: Session) -> LoadedProgram:
        goldens = GoldenCases(self._bundle.file(entry.golden.path), entry)
        return LoadedProgram(entry, session, goldens)

    def _judge(self, program: LoadedProgram) -> Judged:
        manifest, step = self._bundle.manifest, self._sender.step
        emulated, most = emulates(manifest.requires), math.inf
        if emulated:  # the remaining time is shared equally by the remaining programs
            left = self._order.began + _CASES_SHARE * self._order.limits.seconds - time.time()
            most = left / (len(manifest.programs) - len(self._sender.findings))
        judged = judge_program(
            program,
            manifest.tolerances,
            step=step,
            seconds=self._seconds,
            threads=self._threads,
            most=most,
        )
        if emulated:
            judged.run_otherwise()
        self._facts += judged.facts
        self._sender.finding(judged.validation)
        return judged

    def _refute(
        self, programs: Mapping[str, LoadedProgram], judgements: Mapping[str, Judged]
    ) -> None:
        """Try to refute each program, for at most a fifth of the trial's time."""
        spent = time.time() - self._order.began
        tolerances = self._bundle.manifest.tolerances
        left = max(spent / 4, _LEAST_SECONDS)
        for name, program in programs.items():
            file = program.entry.files.get(Role.REFUTING)
            if file is None:
                continue
            self._sender.step(f"program {name}, inputs that try to refute it")
            path, golden = self._bundle.file(file.path), program.goldens.inputs
            found = refute(program.session, golden, path, tolerances, seconds=left)
            left, spent = left - found.seconds, spent + found.seconds
            found = replace(found, share=found.seconds / spent)
            self._facts += judgements[name].take(found)

    def _accuracy(self, programs: Mapping[str, LoadedProgram]) -> AccuracyResult | None:
        manifest = self._bundle.manifest
        gate = manifest.accuracy
        if gate is None:
            return None
        self._sender.step(f"program {gate.program}, accuracy gate")
        data = self._bundle.file(manifest.files[Role.ACCURACY].path)
        program = programs[gate.program].in_sequence()
        result = accuracy(program, gate, data, judges=self._accuracy_judges)
        if not result.passed:
            self._facts.append(
                f"program {gate.program}: accuracy {result.artifact:.6g} on {result.samples} "
                f"samples is not eager's {result.eager:.6g}{_but_for(result, 'sample')}"
            )
        return result

    def _word_errors(self, programs: Mapping[str, LoadedProgram]) -> tuple[WordErrors, ...]:
        files = self._bundle.manifest.files
        if Role.SPEECH not in files:
            return ()
        self._sender.step("word errors")
        recipe = read_recipe(self._bundle.file(files[Role.SPEECH].path), programs)
        if recipe.gate is None:
            return ()
        if Role.HELD_OUT not in files:
            raise ArtifactError("word errors", "the recipe has a gate, the bundle no recordings")
        if not recipe.gate.emulated and emulates(self._bundle.manifest.requires):
            self._not_counted = _NOT_COUNTED
            return ()
        path = self._bundle.file(files[Role.HELD_OUT].path)
        judges = self._accuracy_judges
        found = word_errors(programs, recipe, recipe.gate, path, judges=judges)
        for each in found:
            if not each.passed:
                self._facts.append(
                    f"head {each.head}: {each.artifact} of {each.words} words wrong; eager "
                    f"PyTorch has {each.eager}{_but_for(each, 'word')}, and less than "
                    f"{percent(each.most)} may be wrong"
                )
        return found

    @property
    def _accuracy_judges(self) -> bool:
        return self._bundle.manifest.tolerances.get(Dtype.FLOAT32) == ANY_FINITE

    def _refuse_torch(self) -> None:
        """Raise SessionError if libtorch is loaded: the artifact must work without it."""
        if "torch" in sys.modules:
            raise SessionError("validation", "torch was imported into the runtime's process")
        if libraries := foreign_libraries():
            raise SessionError("validation", f"{libraries[0]} is loaded: not free of PyTorch")


if __name__ == "__main__":
    sys.exit(main())
