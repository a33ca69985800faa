"""Disks that are really full: a row that says so, nothing half written, and then all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_disk import SmallDisk

from zoo.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


def test_the_disk_of_a_worker_is_full(cluster: ToyCluster, tmp_path: Path) -> None:
    """It fails the one model that is too large; the next ones find the space again."""
    cluster.kill("worker")
    cluster.write_manifest(ant="fine", bee="weighs 64", cat="fine")
    with SmallDisk(tmp_path / "disk", 48) as disk:
        cluster.changes["MENAGERIE_HOME"] = str(disk.folder)
        cluster.prefix = disk.prefix
        cluster.start_worker("small")
        del cluster.changes["MENAGERIE_HOME"]
        cluster.prefix = ()
        cluster.convert()
        rows = cluster.table()
        assert {key: (row["outcome"], row["stage"]) for key, row in rows.items()} == {
            "ant cpu": ("published", None),
            "bee cpu": ("failed", "lower"),
            "cat cpu": ("published", None),
        }
        assert "no space left" in rows["bee cpu"]["reason"]
        assert not [file for file in disk.files() if file.startswith("work/")]
        disk.resize(256)
        cluster.convert()
        assert cluster.table()["bee cpu"]["outcome"] == "published"
    store = open_store(cluster.store)
    assert [release.model for release in store.releases()] == ["ant", "bee", "cat"]
    assert cluster.noted("ant") == ["done"]


def test_the_disk_of_the_store_is_full(cluster: ToyCluster, tmp_path: Path) -> None:
    """Publication fails for what does not fit, and leaves nothing of it behind."""
    cluster.kill("worker")
    cluster.write_manifest(ant="fine", bee="weighs 64", cat="fine")
    with SmallDisk(tmp_path / "disk", 48) as disk:
        cluster.store = str(disk.folder / "store")
        cluster.prefix = disk.prefix
        cluster.start_worker("small")
        cluster.convert()
        rows = cluster.table()
        assert {key: (row["outcome"], row["stage"]) for key, row in rows.items()} == {
            "ant cpu": ("published", None),
            "bee cpu": ("failed", "publish"),
            "cat cpu": ("published", None),
        }
        assert "no space left" in rows["bee cpu"]["reason"]
        listed = disk.files()
        assert not [file for file in listed if "bee" in file]
        disk.resize(256)
        cluster.convert()
        assert cluster.table()["bee cpu"]["outcome"] == "published"
        assert set(listed) < set(disk.files())
