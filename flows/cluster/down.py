"""Ending the local cluster, and whatever its processes started."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress

from flows.cluster.processes import alive, birth, marked, stop
from flows.cluster.state import ClusterState, cluster_folder, state_path
from flows.cluster.up import locked
from zoo.errors import MenagerieError

__all__ = ["down"]

_SECONDS = {"worker": 20.0, "server": 15.0}  # to end by themselves: runs and database to be closed
_OTHERS_SECONDS = 5.0
_POLL_SECONDS = 0.05


def down() -> list[str]:
    """End every process of the cluster, the worker first; data, ports and secrets stay.

    Returns:
        The names of the processes that ran, then the ids of strays that had to be ended too.
    """
    with locked():
        try:
            state = ClusterState.load()
        except MenagerieError:  # damaged: what it named is found by its mark all the same
            state_path().replace(state_path().with_suffix(".damaged"))
            state = None
        ended = []
        for name, record in reversed(dict(state.processes if state else {}).items()):
            if alive(record):
                stop(record, _SECONDS.get(name, _OTHERS_SECONDS))
                ended.append(name)
        ended += [f"process {pid}" for pid in _end_strays()]
        shutil.rmtree(cluster_folder() / "tmp", ignore_errors=True)  # working folders of runs
        if state is not None and state.processes:
            state.model_copy(update={"processes": {}}).save()
        return ended


def _end_strays() -> list[int]:
    """Kill what the cluster's processes left: runs at work, and the compilers they started."""
    strays = [pid for pid in marked() if pid != os.getpid()]
    deadline = time.monotonic() + _OTHERS_SECONDS
    left = strays
    while left and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        left = [pid for pid in left if birth(pid) is not None]
    return strays
