"""The network between a worker and its S3 server: refused, slow, deaf, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from forwarder import Forwarder
from heavy import MIB
from swift_server import ACCESS_KEY, SECRET_KEY, SwiftServer
from toy_cluster import published

from zoo.processes import OWN_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults

WEIGHTS = 11  # mebibytes: three parts
TWICE = 2 * WEIGHTS  # as files, and as one archive for the link on the run's page
READ_SECONDS = 3


@pytest.fixture
def way(
    cluster: ToyCluster, swift: SwiftServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Forwarder]:
    """What is between the only worker and the store; parent and test reach it directly."""
    cluster.store = f"s3://zoo/{tmp_path.name}"
    settings = {
        OWN_STORE: cluster.store,  # so that a run signs what it publishes
        "AWS_ENDPOINT_URL_S3": swift.http,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_MAX_ATTEMPTS": "2",
        "MENAGERIE_TEST_LINE": str(READ_SECONDS),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    cluster.kill("worker")
    with Forwarder(swift.ports["http"]) as forwarder:
        address = f"http://127.0.0.1:{forwarder.port}"
        cluster.changes |= settings | {"AWS_ENDPOINT_URL_S3": address}
        cluster.start_worker("far")
        cluster.changes["AWS_ENDPOINT_URL_S3"] = swift.http
        yield forwarder


def outcomes(cluster: ToyCluster) -> dict[str, tuple[str, str | None]]:
    """How each model ended, and at which stage."""
    return {key.split()[0]: (row["outcome"], row["stage"]) for key, row in cluster.table().items()}


def test_a_line_slower_than_its_time_outs_is_tolerated(cluster: ToyCluster, way: Forwarder) -> None:
    """A part takes five seconds where three of silence are the limit: bytes move, so it is well."""
    way.pace = MIB
    cluster.write_manifest(ant=f"weighs {WEIGHTS}")
    cluster.convert()
    assert outcomes(cluster) == {"ant": ("published", None)}
    assert way.sent["up"] < (TWICE + 1) * MIB
    assert published(cluster) == ["ant"]


def test_a_line_that_breaks_costs_no_more_than_a_part(cluster: ToyCluster, way: Forwarder) -> None:
    """Reset in the middle of the second part: the first is not sent again."""
    way.cuts["up"] = [(7 * MIB, lambda: None)]
    cluster.write_manifest(bee=f"weighs {WEIGHTS}")
    cluster.convert()
    assert outcomes(cluster) == {"bee": ("published", None)}
    assert way.sent["up"] < (TWICE + 5) * MIB
    assert published(cluster) == ["bee"]


def test_a_line_that_goes_deaf_is_given_up(cluster: ToyCluster, way: Forwarder) -> None:
    """Connections are taken, nothing answers: the row says so; mended, all is converted."""
    way.deaf_after = 7 * MIB
    cluster.write_manifest(cat=f"weighs {WEIGHTS}")
    cluster.convert()
    rows = cluster.table()
    assert (rows["cat cpu"]["outcome"], rows["cat cpu"]["stage"]) == ("failed", "publish")
    assert "no answer (timed out)" in rows["cat cpu"]["reason"]
    assert published(cluster) == []
    way.deaf_after = None
    cluster.convert()
    assert outcomes(cluster) == {"cat": ("published", None)}
    assert published(cluster) == ["cat"]


def test_a_server_that_refuses_connections_fails_its_models_alone(
    cluster: ToyCluster, way: Forwarder, swift: SwiftServer
) -> None:
    """It dies while a model is lowered: rows for all; when it is back, all is converted."""
    cluster.write_manifest(dog="sleeps 4", eel="fine")
    cluster.convert()
    cluster.flow_process("dog")
    swift.kill()
    try:
        rows = cluster.table()
    finally:
        swift.start()
    assert {row["outcome"] for row in rows.values()} == {"failed"}
    assert all("127.0.0.1" in row["reason"] for row in rows.values())
    assert published(cluster) == []
    cluster.convert()
    assert set(outcomes(cluster).values()) == {("published", None)}
    assert published(cluster) == ["dog", "eel"]
    assert way.sent["up"] > 0
