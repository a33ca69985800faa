"""Somebody hears of a run with failures, once, by every channel that one file names."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from mail_server import Inbox, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """An address to which mail can be sent."""
    with receiving() as taking:
        yield taking


@pytest.fixture
def hook() -> Iterator[tuple[list[dict[str, str]], int]]:
    """What was posted to a listener, and its port."""
    posted: list[dict[str, str]] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield posted, server.server_port
        server.shutdown()


def outcomes(table: dict[str, dict[str, Any]]) -> dict[str, str]:
    """How each model ended."""
    return {key.split()[0]: str(row["outcome"]) for key, row in table.items()}


def test_a_run_with_failures_is_one_message_by_every_channel(
    cluster: ToyCluster,
    inbox: Inbox,
    hook: tuple[list[dict[str, str]], int],
    tmp_path: Path,
) -> None:
    """The table is in it, and a run without failures says nothing."""
    mails, posted = inbox.mails, hook[0]
    (tmp_path / "notifications.yaml").write_text(
        "channels:\n"
        "  - {name: owner, kind: mail, url_from: NOTIFY_MAIL}\n"
        "  - {name: pager, kind: webhook, url_from: NOTIFY_HOOK, about: [failures]}\n"
    )
    cluster.changes |= {
        "MENAGERIE_NOTIFICATIONS": str(tmp_path / "notifications.yaml"),
        "NOTIFY_MAIL": inbox.address,
        "NOTIFY_HOOK": f"http://127.0.0.1:{hook[1]}/",
    }
    cluster.apply()
    cluster.write_manifest(emu="fine")
    cluster.convert("well")
    assert outcomes(cluster.table("well")) == {"emu": "published"}
    cluster.write_manifest(ape="segfaults", bat="fine")
    cluster.convert("badly")
    assert outcomes(cluster.table("badly"))["ape"] == "crashed"
    cluster.wait_for(lambda: mails and posted, "both have arrived")
    [said] = posted
    assert "1 published, 1 crashed" in said["subject"]
    assert "| ape | cpu |" in said["body"]
    assert "bat" not in said["body"]
    [mail] = mails
    assert (mail["To"], "1 crashed" in mail["Subject"]) == ("owner@example.org", True)
    body = mail.get_body(("html",)).get_content()
    assert "<td>ape</td>" in body, "a table, and not its source"
    assert "/runs/flow-run/" in body
    assert "\\" not in body, "no sign is escaped where one reads it"
    cluster.changes.clear()
    cluster.apply()  # whoever is no longer named hears nothing
    names = [each["name"] for each in cluster.post("/automations/filter", {})]
    assert not [name for name in names if name.startswith("menagerie-tell-")]


def test_who_wants_to_hear_of_the_nights_and_the_pools_does(
    cluster: ToyCluster, hook: tuple[list[dict[str, str]], int], tmp_path: Path
) -> None:
    """A release that no longer proves, a store that takes nothing, a pool that has lost its Mac.

    The Macs' pool, which had no worker when all began, says nothing before it has had one.
    """
    posted = hook[0]
    (tmp_path / "notifications.yaml").write_text(
        "channels:\n"
        "  - name: pager\n    kind: webhook\n    url_from: NOTIFY_HOOK\n"
        "    about: [refuted, store, late-pool]\n"
    )
    cluster.changes |= {
        "MENAGERIE_NOTIFICATIONS": str(tmp_path / "notifications.yaml"),
        "NOTIFY_HOOK": f"http://127.0.0.1:{hook[1]}/",
    }
    cluster.apply()
    cluster.write_manifest(hen="fine")
    cluster.convert()
    assert outcomes(cluster.table()) == {"hen": "published"}
    assert posted == []

    def hears(word: str) -> list[dict[str, str]]:
        return [each for each in posted if word in each["subject"]]

    # A toy's library is none: the real judge of the nights refuses it.
    cluster.submit("verify-releases/verify-releases", {"store": cluster.store})
    cluster.wait_for(lambda: hears("verification: "), "the refuted release is told of")
    (tmp_path / "no-folder").write_text("a file")
    cluster.submit("collect-garbage/collect-garbage", {"store": str(tmp_path / "no-folder")})
    cluster.wait_for(lambda: hears("the store cannot be swept"), "the store is told of")
    assert not hears("No worker in pool")
    cluster.start_worker("mac", pool="macos-metal")
    cluster.kill("mac")
    cluster.wait_for(lambda: hears("No worker in pool macos-metal"), "the pool is told of", 300)
    assert len(posted) == 3
    assert "hen" in hears("verification: ")[0]["body"]
    cluster.changes.clear()
    cluster.apply()
