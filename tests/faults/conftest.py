"""One cluster for all fault tests; each has a zoo, a store and notes of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))

import boto3
import swift_server
from swift_server import SwiftServer
from toy_cluster import ToyCluster, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyCluster]:
    """A server with our pools, deployments and automations, and one worker."""
    yield from running(tmp_path_factory.mktemp("cluster") / "cluster")


@pytest.fixture
def cluster(
    shared: ToyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ToyCluster]:
    """The cluster, with server and worker running, and an empty store."""
    shared.store = str(tmp_path / "store")
    shared.manifest = tmp_path / "manifest"
    shared.manifest.mkdir()
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path / "home"))
    shared.heal()
    for file in shared.notes.iterdir():
        file.unlink()
    yield shared
    shared.end_runs()
    for name in set(shared.processes) - {"database", "server", "worker"}:
        shared.kill(name)
    shared.changes.clear()
    shared.prefix = ()


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwiftServer]:
    """A real S3 server with a bucket."""
    for server in swift_server.running(tmp_path_factory.mktemp("swift")):
        client = boto3.client(
            "s3",
            endpoint_url=server.http,
            region_name="us-east-1",
            aws_access_key_id=swift_server.ACCESS_KEY,
            aws_secret_access_key=swift_server.SECRET_KEY,
        )
        client.create_bucket(Bucket="zoo")
        client.close()
        yield server
