"""Ending the local cluster, and whatever its processes started; and what its runs are told then."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from flows.connection import (
    ClusterState,
    Credentials,
    ask_manager,
    cluster_folder,
    local_connection,
    running,
    state_path,
)
from infra.local.processes import POOL, locked, marked
from infra.local.server import put_back
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECONDS = 60.0  # supervisord ends its processes one after another


def down() -> list[str]:
    """End every process of the cluster, the worker first; data, ports and secrets stay.

    Returns:
        The names of the processes that ran, then the ids of strays that had to be ended too.
    """
    with locked():
        try:
            state = ClusterState.load()
        except MenagerieError:  # damaged: what runs is found all the same
            state_path().replace(state_path().with_suffix(".damaged"))
            state = None
        ended, strays = sorted(running()), []
        if "worker" in ended:
            ask_manager("stopProcess", "worker")
        with suppress(OSError):  # no manager
            manager = psutil.Process(ask_manager("getPID"))
            strays += _end_marked(but=[manager.pid, *running().values()])
            if state is not None and "server" in ended:
                _give_back_runs(state)
            ask_manager("shutdown")
            with suppress(psutil.TimeoutExpired):
                manager.wait(_SECONDS)
        strays += _end_marked(but=[])
        shutil.rmtree(cluster_folder() / "tmp", ignore_errors=True)  # working folders of runs
        if state is not None and state.up:
            state.model_copy(update={"up": False}).save()
        return [*ended, *strays]


def _give_back_runs(state: ClusterState) -> None:
    """What was at work is to run again after the next `zoo up`, and stands so on the server."""
    with suppress(MenagerieError):  # else it will be noticed then
        if (credentials := Credentials.load()) is not None:
            put_back(local_connection(state, credentials), POOL)


def _end_marked(but: Iterable[int]) -> list[str]:
    """Kill what the cluster's processes left: runs at work, and the compilers they started."""
    strays = [each for each in marked() if each.pid not in {os.getpid(), *but}]
    for each in strays:
        with suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(strays, timeout=_SECONDS)
    return [f"process {each.pid}" for each in strays]
