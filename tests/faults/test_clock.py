"""Workers whose clocks are an hour off: no run is taken for lost, none is done twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from swift_server import ACCESS_KEY, SECRET_KEY, SwiftServer

from zoo.store import open_store

if TYPE_CHECKING:
    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults

HOUR = 3600
SOURCE = Path(__file__).with_name("skewed_clock.c")


@pytest.fixture(scope="module")
def skewed_clock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that puts the clock of a process wrong."""
    compiler = shutil.which("cc")
    assert compiler is not None
    library = tmp_path_factory.mktemp("clock") / "skewed_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return str(library)


def start_worker(cluster: ToyCluster, name: str, library: str, seconds: int) -> None:
    """Start a worker, and the flows that it will run, with a clock so much ahead."""
    before = dict(cluster.changes)
    cluster.changes |= {"LD_PRELOAD": library, "SKEW_SECONDS": str(seconds)}
    cluster.start_worker(name)
    cluster.changes = before


def test_a_long_run_on_a_clock_ahead_is_not_taken_for_lost(
    cluster: ToyCluster, skewed_clock: str
) -> None:
    """It outlasts three heartbeats, is done once by one run, and its row is true."""
    cluster.kill("worker")
    start_worker(cluster, "ahead", skewed_clock, HOUR)
    cluster.write_manifest(ant="sleeps 100")
    cluster.convert()
    row = cluster.table(seconds=400)["ant cpu"]
    assert row["outcome"] == "published"
    assert 100 <= row["seconds"] < 300
    assert cluster.noted("ant").count("done") == 1
    [run] = cluster.batches()
    assert (run["state_name"], run["run_count"]) == ("Completed", 1)


def test_workers_whose_clocks_disagree_share_the_work(
    cluster: ToyCluster, skewed_clock: str
) -> None:
    """One is right, one ahead, one behind; two parents want the same models: each is done once."""
    start_worker(cluster, "ahead", skewed_clock, HOUR)
    start_worker(cluster, "behind", skewed_clock, -HOUR)
    cluster.write_manifest(bee="sleeps 8", cat="fine")
    cluster.convert("first")
    cluster.convert("second")
    tables = [cluster.table("first"), cluster.table("second")]
    assert {row["outcome"] for table in tables for row in table.values()} <= {
        "published",
        "skipped",
    }
    assert sorted(table["bee cpu"]["outcome"] for table in tables) == ["published", "skipped"]
    assert cluster.noted("bee").count("done") == 1
    assert [r.model for r in open_store(cluster.store).releases()] == ["bee", "cat"]


def test_a_store_that_refuses_a_wrong_clock_is_named_with_it(
    cluster: ToyCluster,
    swift: SwiftServer,
    skewed_clock: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3 refuses requests an hour old: the row says what to do, and a right worker completes."""
    settings = {
        "AWS_ENDPOINT_URL_S3": swift.http,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    cluster.changes |= settings
    cluster.store = f"s3://zoo/{tmp_path.name}"
    cluster.write_manifest(dog="fine")
    cluster.kill("worker")
    start_worker(cluster, "ahead", skewed_clock, HOUR)
    cluster.convert()
    row = cluster.table()["dog cpu"]
    assert row["outcome"] == "failed"
    assert "clock" in row["reason"]
    assert open_store(cluster.store).releases() == []
    cluster.kill("ahead")
    cluster.start_worker("right")
    cluster.convert()
    assert cluster.table()["dog cpu"]["outcome"] == "published"


def test_the_doctor_compares_clocks(cluster: ToyCluster, skewed_clock: str) -> None:
    """`zoo doctor` on a worker's machine says by how much its clock differs."""
    for seconds, detail in ((HOUR, "ahead of"), (-HOUR, "behind"), (0, "as the server's")):
        changes = {"LD_PRELOAD": skewed_clock, "SKEW_SECONDS": str(seconds)}
        done = subprocess.run(
            [Path(sys.executable).with_name("zoo"), "doctor", "--json"],
            env=cluster.environment() | changes,
            capture_output=True,
            text=True,
            check=False,
        )
        checks = {check["name"]: check for check in json.loads(done.stdout)}
        assert detail in checks["clock"]["detail"]
        assert checks["clock"]["health"] == ("ok" if seconds == 0 else "fail")
