"""Pools without a worker: nothing hangs, and waiting runs are done when a worker comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil
import pytest

from menagerie.format.bundle_manifest import ReleaseState
from zoo.store import open_store

if TYPE_CHECKING:
    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


def test_what_was_emulated_waits_in_the_store_for_a_mac(cluster: ToyCluster) -> None:
    """Parents end, both targets published; a worker of the Macs' pool asks the store."""
    cluster.write_manifest(ant_metal="fine", bee="fine")
    cluster.convert()
    rows = cluster.table()
    assert {key: (row["outcome"], row["proof"]) for key, row in rows.items()} == {
        "ant_metal cpu": ("published", "validated"),
        "ant_metal metal": ("published", "emulated"),
        "bee cpu": ("published", "validated"),
    }
    run = cluster.submit("confirm-releases/confirm-releases", {"store": cluster.store})
    cluster.start_worker("mac", pool="macos-metal")
    cluster.wait_for(lambda: cluster.state(run) == "Completed", "it is confirmed")
    key = rows["ant_metal metal"]["build_key"]
    [held] = open_store(cluster.store).held([("ant_metal", "metal", key)]).values()
    assert held.state is ReleaseState.VALIDATED
    cluster.convert()
    again = cluster.table()["ant_metal metal"]
    assert (again["outcome"], again["proof"]) == ("skipped", "validated")


def test_a_pool_without_a_worker_ends_in_rows(cluster: ToyCluster) -> None:
    """Without any worker the parent gives up in time and says where to start one; no run stays."""
    cluster.kill("worker")
    cluster.wait_for(lambda: not cluster.online("linux-cpu"), "the worker is missed")
    cluster.write_manifest(yak="fine")
    cluster.convert(limits={"minutes_without_worker": 0})
    row = cluster.table()["yak cpu"]
    assert row["outcome"] == "timed out"
    assert "no worker in pool linux-cpu" in row["reason"]
    assert [run["state_type"] for run in cluster.batches()] == ["CANCELLED"]
    cluster.start_worker("late")
    cluster.convert()
    assert cluster.table()["yak cpu"]["outcome"] == "published"


def test_an_hour_that_was_slept_through_is_caught_up(cluster: ToyCluster) -> None:
    """Server and worker are stopped, as on a laptop whose lid is shut, while a run falls due."""
    cluster.write_manifest(owl="fine")
    options = {"manifest": str(cluster.manifest), "store": cluster.store, "random_weights": 0}
    due = datetime.now(UTC) + timedelta(seconds=10)
    scheduled = {"type": "SCHEDULED", "state_details": {"scheduled_time": due.isoformat()}}
    run = cluster.submit(
        "convert-model/convert-model", {"model": "owl", "options": options}, scheduled
    )
    asleep = [psutil.Process(cluster.processes[name].pid) for name in ("server", "worker")]
    for each in asleep:
        each.suspend()
    cluster.wait_for(lambda: datetime.now(UTC) > due + timedelta(seconds=5), "its hour is past")
    for each in asleep:
        each.resume()
    cluster.wait_for(lambda: cluster.state(run) == "Completed", "it is done on waking")
    assert cluster.noted("owl") == ["done"]
