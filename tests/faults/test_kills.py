"""Processes that are killed: the runs end in true states, nothing is half published."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from toy_cluster import published

if TYPE_CHECKING:
    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


def outcomes(table: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How each model ended."""
    return {key.split()[0]: str(row["outcome"]) for key, row in table.items()}


def test_a_killed_worker_leaves_its_run_to_finish_or_to_another(cluster: ToyCluster) -> None:
    """The worker alone is killed; a new one comes; at most the stage at hand is done twice."""
    cluster.write_manifest(cat="sleeps 6")
    cluster.convert()
    cluster.flow_process("cat")
    cluster.kill_alone("worker")
    cluster.start_worker()
    assert outcomes(cluster.table()) == {"cat": "published"}
    assert cluster.noted("cat").count("done") <= 2
    assert published(cluster) == ["cat"]


def test_a_run_ends_with_its_worker(cluster: ToyCluster) -> None:
    """Where it could not be cancelled any more it does not run on, nor does its model's process."""
    cluster.write_manifest(owl="sleeps 300")
    cluster.convert()
    flow = cluster.flow_process("owl")
    below = flow.children(recursive=True)
    cluster.kill_alone("worker")
    gone = [flow, *below]
    cluster.wait_for(lambda: not any(cluster.is_running(p.pid) for p in gone), "they have ended")


def test_a_lost_host_is_noticed_and_its_run_done_elsewhere(cluster: ToyCluster) -> None:
    """Worker, flow and model process die at once, unreported: the missing heartbeats show it."""
    cluster.write_manifest(dodo="sleeps 20")
    cluster.convert()
    cluster.flow_process("dodo")
    cluster.kill("worker")
    cluster.start_worker("other")
    assert outcomes(cluster.table(seconds=480)) == {"dodo": "published"}
    [run] = cluster.batches()
    assert (run["state_name"], run["run_count"]) == ("Completed", 2)
    assert cluster.noted("dodo").count("done") == 1
    assert published(cluster) == ["dodo"]


def test_a_run_whose_worker_died_before_it_began_goes_back(cluster: ToyCluster) -> None:
    """A worker takes it and is gone: it does not stay Pending for ever, without a worker."""
    cluster.write_manifest(jay="fine")
    options = {"manifest": str(cluster.manifest), "store": cluster.store, "random_weights": 0}
    cluster.kill("worker")
    run = cluster.submit("convert-batch/convert-batch", {"models": ["jay"], "options": options})
    claim = {"state": {"type": "PENDING", "name": "Pending"}}  # as a worker does it
    cluster.post(f"/flow_runs/{run}/set_state", claim)
    cluster.wait_for(lambda: cluster.state(run) == "AwaitingRetry", "it is back in the queue")
    cluster.start_worker()
    cluster.wait_for(lambda: cluster.state(run) == "Completed", "it is done")
    assert published(cluster) == ["jay"]


def test_a_run_that_cannot_begin_is_not_tried_for_ever(cluster: ToyCluster) -> None:
    """A worker with a broken installation: the run ends as crashed, and the row says so."""
    cluster.kill("worker")
    cluster.write_manifest(kiwi="fine")
    broken = cluster.folder / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "toy_flows.py").write_text("raise ImportError('half an upgrade')\n")
    path = cluster.environment()["PYTHONPATH"]
    cluster.changes["PYTHONPATH"] = os.pathsep.join([str(broken), path])
    cluster.start_worker("broken")
    del cluster.changes["PYTHONPATH"]
    cluster.convert()
    assert outcomes(cluster.table()) == {"kiwi": "crashed"}
    [run] = cluster.batches()
    assert (run["state_type"], run["run_count"]) == ("CRASHED", 0)
    cluster.kill("broken")
    cluster.start_worker()
    cluster.convert()
    assert outcomes(cluster.table()) == {"kiwi": "published"}


def test_a_server_that_restarts_loses_nothing(cluster: ToyCluster) -> None:
    """Killed and started again on its database while parent and child are at work."""
    cluster.write_manifest(eel="sleeps 12", fox="fine")
    cluster.convert()
    cluster.flow_process("eel")
    cluster.kill("server")
    cluster.start_server()
    assert set(outcomes(cluster.table()).values()) == {"published"}
    assert published(cluster) == ["eel", "fox"]


def test_a_killed_parent_is_run_again_and_finds_its_children(cluster: ToyCluster) -> None:
    """On a worker: the second run of the parent waits for the child of the first."""
    cluster.write_manifest(gnu="sleeps 25")
    options = {"manifest": str(cluster.manifest), "store": cluster.store, "random_weights": 0}
    parent = cluster.submit("convert-zoo/convert-zoo", {"options": options})
    child = cluster.flow_process("gnu").pid
    [process] = [each for each in cluster.flow_processes() if each.pid != child]
    process.send_signal(signal.SIGKILL)
    cluster.wait_for(lambda: cluster.state(parent) == "Completed", "the parent is completed", 300)
    assert cluster.noted("gnu").count("done") == 1
    assert len(cluster.batches()) == 1
    assert published(cluster) == ["gnu"]


def test_cancelling_a_run_stops_its_processes(cluster: ToyCluster) -> None:
    """As the UI does it: the parent and its child end cancelled, and no process is left."""
    cluster.write_manifest(hen="sleeps 3600")
    options = {"manifest": str(cluster.manifest), "store": cluster.store, "random_weights": 0}
    parent = cluster.submit("convert-zoo/convert-zoo", {"options": options})
    cluster.flow_process("hen")
    pids = [int(pid) for pid in cluster.noted("hen")[-1].split()]
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    cluster.post(f"/flow_runs/{parent}/set_state", state)
    cluster.wait_for(lambda: cluster.state(parent) == "Cancelled", "the parent is cancelled", 120)
    [child] = cluster.batches()
    cluster.wait_for(lambda: cluster.state(child["id"]) == "Cancelled", "the child is", 120)
    cluster.wait_for(lambda: not any(map(cluster.is_running, pids)), "its processes are gone")
    assert published(cluster) == []
    cluster.write_manifest(hen="fine")
    cluster.convert()
    assert outcomes(cluster.table()) == {"hen": "published"}


def test_a_frozen_worker_is_not_waited_for_for_ever(cluster: ToyCluster) -> None:
    """A Mac that falls asleep: its run is given up in time, and does not go on when it wakes."""
    cluster.write_manifest(ibex="sleeps 3600")
    cluster.convert(limits={"minutes_per_model": 1})
    flow = cluster.flow_process("ibex")
    frozen = [flow.pid, *(c.pid for c in flow.children(recursive=True))]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        rows = cluster.table(seconds=300)
    finally:
        for pid in frozen:
            if cluster.is_running(pid):
                os.kill(pid, signal.SIGCONT)
    assert outcomes(rows) == {"ibex": "timed out"}
    assert "not done after 1 minutes" in rows["ibex cpu"]["reason"]
    cluster.wait_for(lambda: not any(map(cluster.is_running, frozen)), "it ends when it wakes up")
    assert published(cluster) == []
