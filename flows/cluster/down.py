"""Ending the local cluster, and whatever its processes started."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from flows.cluster.api import ApiSilent
from flows.cluster.connection import local_connection
from flows.cluster.credentials import Credentials
from flows.cluster.lost_runs import put_back
from flows.cluster.processes import alive, marked, stop
from flows.cluster.server import POOL
from flows.cluster.state import ClusterState, cluster_folder, state_path
from flows.cluster.up import locked
from zoo.errors import MenagerieError
from zoo.processes import birth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flows.cluster.state import ProcessRecord

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
        processes = dict(state.processes) if state is not None else {}
        ended = _end(["worker"], processes)
        servers = {name: record for name, record in processes.items() if alive(record)}
        ended += _end_strays({record.pid for record in servers.values()})
        if state is not None and "server" in servers:
            _give_back_runs(state)
        ended += _end(sorted(servers, key=lambda name: name != "server"), servers)
        ended += _end_strays(set())
        shutil.rmtree(cluster_folder() / "tmp", ignore_errors=True)  # working folders of runs
        if state is not None and state.processes:
            state.model_copy(update={"processes": {}}).save()
        return ended


def _end(names: Iterable[str], processes: Mapping[str, ProcessRecord]) -> list[str]:
    """Stop those that run, one after another; returns their names."""
    running = [name for name in names if alive(processes.get(name))]
    for name in running:
        stop(processes[name], _SECONDS.get(name, _OTHERS_SECONDS))
    return running


def _give_back_runs(state: ClusterState) -> None:
    """What was at work is to run again after the next `zoo up`, and stands so on the server."""
    with suppress(ApiSilent, MenagerieError):  # else it will be noticed then
        if (credentials := Credentials.load()) is not None:
            put_back(local_connection(state, credentials), POOL)


def _end_strays(but: set[int]) -> list[str]:
    """Kill what the cluster's processes left: runs at work, and the compilers they started."""
    strays = [pid for pid in marked() if pid != os.getpid() and pid not in but]
    deadline = time.monotonic() + _OTHERS_SECONDS
    left = strays
    while left and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        left = [pid for pid in left if birth(pid) is not None]
    return [f"process {pid}" for pid in strays]
