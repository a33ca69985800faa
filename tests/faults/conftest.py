"""One cluster for all fault tests; each has a zoo, a store and notes of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))

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
    for name in set(shared.processes) - {"server", "worker"}:
        shared.kill(name)
    shared.changes.clear()
