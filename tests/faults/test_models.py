"""Models that misbehave, each in a run with others: they end as rows, and the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zoo.store import open_store

if TYPE_CHECKING:
    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


def test_models_that_crash_loop_and_eat(cluster: ToyCluster) -> None:
    """A segfault, an endless stage, one that eats memory: rows that say so, and two others.

    Each failed once, as a run of its own: that of the batch has done what it is for. Nothing of the
    failed ones is published.
    """
    cluster.write_manifest(ant="fine", bee="segfaults", cat="sleeps 3600", dog="eats", eel="fine")
    cluster.convert(options={"stage_minutes": 1, "memory_gib": 1})
    rows = cluster.table()
    assert {key: row["outcome"] for key, row in rows.items()} == {
        "ant cpu": "published",
        "bee cpu": "crashed",
        "cat cpu": "timed out",
        "dog cpu": "crashed",
        "eel cpu": "published",
    }
    assert "SIGSEGV" in rows["bee cpu"]["reason"]
    assert "lower was stopped after 60 s" in rows["cat cpu"]["reason"]
    assert "killed: memory" in rows["dog cpu"]["reason"]
    assert {row["stage"] for row in rows.values()} == {None, "lower"}
    assert [r.model for r in open_store(cluster.store).releases()] == ["ant", "eel"]
    pids = [int(pid) for model in ("cat", "dog") for pid in cluster.noted(model)[0].split()]
    assert not any(cluster.is_running(pid) for pid in pids)
    [batch] = cluster.batches()
    assert (batch["state_type"], batch["state_name"]) == ("COMPLETED", "With failures")
    ends = {task["name"]: task["state_type"] for task in cluster.tasks(batch["id"])}
    assert [ends[f"{model} for cpu"] for model in ("ant", "eel")] == ["COMPLETED"] * 2
    assert [ends[f"{model} for cpu"] for model in ("bee", "cat", "dog")] == ["FAILED"] * 3


def test_two_runs_of_the_same_models_convert_them_once(cluster: ToyCluster) -> None:
    """Two parents at the same time: one does the work, the other waits for it and skips."""
    cluster.write_manifest(fox="sleeps 8", gnu="fine")
    cluster.convert("first")
    cluster.convert("second")
    tables = [cluster.table("first"), cluster.table("second")]
    outcomes = sorted(table["fox cpu"]["outcome"] for table in tables)
    assert outcomes == ["published", "skipped"]
    assert cluster.noted("fox").count("done") == 1
    assert cluster.noted("gnu").count("done") == 1
    assert len(open_store(cluster.store).releases()) == 2
