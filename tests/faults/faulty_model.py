"""A process whose model behaves as its summary says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks"))

from heavy import load_with_weights
from toy_zoo import ToyModel

from tasks.job import Job
from tasks.serve_model import main
from transforms.stages import LowerRecord


class FaultyModel(ToyModel):
    """Its lowering is what the test is about."""

    def lower(self) -> LowerRecord:
        """Crash, wait, eat, or do the work, with weights if it is to; and note it down."""
        word, _, argument = self._job.spec.summary.partition(" ")
        match word:
            case "segfaults":
                note(self._job, str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSEGV)
            case "sleeps":
                child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
                note(self._job, f"{os.getpid()} {child.pid}")
                time.sleep(float(argument))
                child.kill()
                child.wait()
            case "eats":
                note(self._job, str(os.getpid()))
                held = bytearray()
                while True:
                    held += b"x" * (64 * 2**20)
        record = super().lower()
        if word == "weighs":
            load_with_weights(self._job, int(argument))
        note(self._job, "done")
        return record


def note(job: Job, text: str) -> None:
    """A line in a file that the test reads: who works on what, and how often."""
    file = Path(os.environ["MENAGERIE_TEST_NOTES"]) / f"{job.model}-{job.target}"
    with file.open("a") as notes:
        notes.write(text + "\n")


if __name__ == "__main__":
    main(FaultyModel)
