"""A process with a model whose stages behave as the test's job asks, by the model's summary."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.job import ExportRecord, Job, PullRecord
from tasks.serve_model import main
from tasks.stage_table import ModelHolder
from zoo.errors import HashMismatch, SourceError, UnsupportedKernels
from zoo.progress import report_step
from zoo.records import Diagnosis, Divergence, DivergenceStage, Suspected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.stages import LowerRecord, TransformRecord


CRASH = Divergence(
    stage=DivergenceStage.LOWERING,
    pass_name=None,
    node="conv2d",
    operator="aten.conv2d.default",
    module_path="stem",
    source_line="toy.py:7",
    max_abs=math.inf,
    snr_db=-math.inf,
    reproducer=Path("found"),
)


class FakeModel(ModelHolder):
    """Its pull says which process it is; each other stage ends in its own way."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def pull(self) -> PullRecord:
        """Print something that must not disturb the answers, then fail or not."""
        sys.stdout.write("a library that talks\n")
        source = str(os.getpid())
        match self._job.spec.summary:
            case "environment":
                source = " ".join(os.environ)
            case "modules":
                source = " ".join(sys.modules)
            case "unreachable":
                lost = ConnectionError("no answer")
                raise SourceError("https://example.org", "cannot be fetched") from lost
            case "wrong hash":
                raise HashMismatch("weights", "have another sha256", "Look at them")
            case "unsupported":
                raise UnsupportedKernels("program main", {"aoti_torch_cpu_cos": ("toy (x.py:1)",)})
        return PullRecord(source=source, parameters=3, random_weights=self._job.seed)

    def export(self) -> ExportRecord:
        """A success in two steps."""
        report_step("program main: traced", 0.5)
        report_step("program main: exported")
        return ExportRecord(programs=("main",))

    def transform(self) -> TransformRecord:
        """A crash such as a compiler's; `nameless`: by a signal that has no name."""
        nameless = self._job.spec.summary == "nameless"
        os.kill(os.getpid(), signal.SIGRTMIN + 1 if nameless else signal.SIGSEGV)
        raise AssertionError

    def lower(self) -> LowerRecord:
        """A child of its own that never ends, recorded next to the job; then it waits for ever."""
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        Path(self._job.folder / "child").write_text(str(child.pid))
        signal.pause()
        raise AssertionError

    def locate(self, suspects: Sequence[Suspected]) -> Diagnosis:
        """Say which suspects arrived; `searching` looks for them for ever, `crashing` finds one."""
        if self._job.spec.summary == "searching":
            signal.pause()
        if self._job.spec.summary == "crashing":
            return Diagnosis(program="main", case=0, divergence=CRASH)
        return Diagnosis(detail=", ".join(f"{program} {case}" for program, case in suspects))


if __name__ == "__main__":
    main(FakeModel)
