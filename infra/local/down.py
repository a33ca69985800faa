"""Ending the local cluster, and whatever its processes started; and what its runs are told then."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from flows.connection import local_connection
from flows.local_cluster import (
    ClusterState,
    Credentials,
    ask_manager,
    cluster_folder,
    running,
    state_path,
)
from infra.local.api import ApiSilent
from infra.local.lost_runs import put_back
from infra.local.processes import POOL, marked
from infra.local.up import locked
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["down"]

_SECONDS = 20.0


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
        ended = _stop(["worker"])
        servers = running()
        ended += _end_strays(but={_manager(), *servers.values()})
        if state is not None and "server" in servers:
            _give_back_runs(state)
        ended += _stop(sorted(servers, key=lambda name: name != "server"))
        _end_manager()
        ended += _end_strays(but=set())
        shutil.rmtree(cluster_folder() / "tmp", ignore_errors=True)  # working folders of runs
        if state is not None and state.up:
            state.model_copy(update={"up": False}).save()
        return ended


def _stop(names: Iterable[str]) -> list[str]:
    """Stop those that run, one after another; returns their names."""
    known = running()
    stopped = [name for name in names if name in known]
    for name in stopped:
        ask_manager("stopProcess", name)
    return stopped


def _manager() -> int | None:
    try:
        return int(ask_manager("getPID"))
    except OSError:
        return None


def _end_manager() -> None:
    if (pid := _manager()) is None:
        return
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        ask_manager("shutdown")
        with suppress(psutil.TimeoutExpired):
            process.wait(_SECONDS)


def _give_back_runs(state: ClusterState) -> None:
    """What was at work is to run again after the next `zoo up`, and stands so on the server."""
    with suppress(ApiSilent, MenagerieError):  # else it will be noticed then
        if (credentials := Credentials.load()) is not None:
            put_back(local_connection(state, credentials), POOL)


def _end_strays(but: set[int | None]) -> list[str]:
    """Kill what the cluster's processes left: runs at work, and the compilers they started."""
    strays = [each for each in marked() if each.pid != os.getpid() and each.pid not in but]
    for each in strays:
        with suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(strays, timeout=_SECONDS)
    return [f"process {each.pid}" for each in strays]
