"""The process of one flow run on a worker: `python -m flows.running.flow_process`.

It runs what Prefect runs there, and ends with the worker that started it. Left alone it would run
on where nobody can cancel it, hold its place in the queue, and meet its own second try.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time

__all__ = ["main"]

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 20.0  # in which the run can still say that it ends


def main() -> None:
    """Run the flow that the environment names, as long as the worker lives."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


def _end_with(worker: int) -> None:
    while os.getppid() == worker:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)  # Prefect has the run count as crashed: it is run again
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
