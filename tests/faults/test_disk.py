"""Disks that are really full: a row that says so, nothing half written, and then all is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from small_disk import SmallDisk
from toy_cluster import ToyCluster

from zoo.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

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
        assert not [file for file in listed if "bee" in file.split("/")]
        disk.resize(256)
        cluster.convert()
        assert cluster.table()["bee cpu"]["outcome"] == "published"
        assert set(listed) < set(disk.files())


def test_the_disk_of_the_server_is_full(tmp_path: Path) -> None:
    """Its database takes nothing for a while: then all is published, and the table is whole."""
    own = ToyCluster(tmp_path / "own")
    with SmallDisk(tmp_path / "disk", 160) as disk:
        own.database, own.prefix = disk.folder / "database", disk.prefix
        own.start_server()
        own.prefix = ()
        try:
            own.apply()
            own.start_worker()
            own.write_manifest(owl="sleeps 20", yak="fine")
            own.convert()
            own.flow_process("owl")
            disk.run("sh", "-c", 'cat /dev/zero > "$0" || true', str(disk.folder / "filler"))
            log = own.folder / "server.log"
            own.wait_for(
                lambda: "No space left on device" in log.read_text(), "the database is refused"
            )
            own.wait_for(lambda: own.noted("owl")[-1] == "done", "the model is lowered")
            disk.run("rm", str(disk.folder / "filler"))
            assert {key: row["outcome"] for key, row in own.table(seconds=600).items()} == {
                "owl cpu": "published",
                "yak cpu": "published",
            }
            own.wait_for(
                lambda: own.batches()[0]["state"]["type"] == "COMPLETED", "its run is, too"
            )
        finally:
            own.stop()
    assert [release.model for release in open_store(own.store).releases()] == ["owl", "yak"]
