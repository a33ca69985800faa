"""The address in MENAGERIE_NOTIFY is notified once of a run with failures, and of lost workers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


@pytest.fixture
def posted(cluster: ToyCluster) -> Iterator[list[dict[str, str]]]:
    """What was posted to the webhook that the cluster's server is configured with."""
    received: list[dict[str, str]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster.changes["MENAGERIE_NOTIFY"] = f"json://127.0.0.1:{server.server_port}/"
        cluster.apply()
        yield received
        server.shutdown()
        cluster.changes.clear()


def outcomes(table: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How each model ended."""
    return {key.split()[0]: str(row["outcome"]) for key, row in table.items()}


def test_a_run_with_failures_is_one_message(
    cluster: ToyCluster, posted: list[dict[str, str]]
) -> None:
    """With its summary and its link; a run without failures says nothing."""
    cluster.write_manifest(emu="fine")
    cluster.convert("well")
    assert outcomes(cluster.table("well")) == {"emu": "published"}
    cluster.write_manifest(ape="segfaults", bat="fine")
    cluster.convert("badly")
    assert outcomes(cluster.table("badly"))["ape"] == "crashed"
    cluster.wait_for(lambda: posted, "it has arrived")
    [said] = posted
    assert "1 published, 1 crashed" in said["title"]
    assert "convert-zoo ended Failed: 1 published, 1 crashed" in said["message"]
    assert "/runs/flow-run/" in said["message"]
    [block] = cluster.post("/block_documents/filter", {})
    assert (block["name"], block["data"]["url"]) == ("menagerie-notify", "********")


def test_the_nights_and_the_pools_are_reported(
    cluster: ToyCluster, posted: list[dict[str, str]], tmp_path: Path
) -> None:
    """A release that no longer proves, a store that takes nothing, a pool that has lost its Mac.

    The Macs' pool, which had no worker when all began, says nothing before it has had one.
    """
    cluster.write_manifest(hen="fine")
    cluster.convert()
    assert outcomes(cluster.table()) == {"hen": "published"}
    assert posted == []

    def reports(word: str) -> bool:
        return any(word in each["title"] for each in posted)

    # A toy's library does not load: the real judge of the nights refuses it.
    cluster.submit("verify-releases/verify-releases", {"store": cluster.store})
    cluster.wait_for(lambda: reports("1 refuted"), "the refuted release is reported")
    (tmp_path / "no-folder").write_text("a file")
    cluster.submit("collect-garbage/collect-garbage", {"store": str(tmp_path / "no-folder")})
    cluster.wait_for(lambda: reports("no-folder"), "the store is reported")
    assert not reports("no worker in pool")
    cluster.start_worker("mac", pool="macos-metal")
    cluster.kill("mac")
    cluster.wait_for(lambda: reports("no worker in pool macos-metal"), "the pool is reported", 300)
    titles = [each["title"] for each in posted]
    for word in ("1 refuted", "no-folder", "no worker in pool macos-metal"):
        assert sum(word in title for title in titles) == 1, titles
