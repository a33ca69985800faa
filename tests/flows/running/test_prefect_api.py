"""The embedded API: ours from start to end, and everything of it under our own folder."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from flows.prefect_api import prefect_api, probe
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path

RUN = """
import sys
from flows.prefect_api import prefect_api
with prefect_api(lambda text: print(text, file=sys.stderr)) as url:
    from prefect import flow, task
    @task
    def stage(): return 1
    @flow(name="tiny")
    def tiny(): return stage() + stage()
    assert tiny() == 2
    print(url, flush=True)
    {then}
"""


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for this file: its first start makes the database, the others find it."""
    return tmp_path_factory.mktemp("home")


def environment(home: Path) -> dict[str, str]:
    """A user's environment without anything of Prefect."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    return {**kept, "MENAGERIE_HOME": str(home / "menagerie"), "HOME": str(home / "user")}


def test_a_flow_runs_on_a_fresh_home(shared_home: Path) -> None:
    """It starts by itself, records every state, ends with us, and writes nowhere else."""
    (shared_home / "user").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(then="")],
        env=environment(shared_home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "starting Prefect's embedded API (first time: up to a minute)\n"
    with pytest.raises(MenagerieError, match="refused"):
        probe(done.stdout.strip())
    assert list((shared_home / "user").rglob("*")) == []
    database = sqlite3.connect(shared_home / "menagerie" / "prefect" / "prefect.db")
    assert database.execute("select name, state_type from flow_run").fetchone()[1] == "COMPLETED"
    states = database.execute("select state_type from task_run").fetchall()
    database.close()
    assert states == [("COMPLETED",), ("COMPLETED",)]


def test_the_server_ends_when_we_are_killed(shared_home: Path) -> None:
    """SIGKILL leaves no server behind: it looks after its parent."""
    program = RUN.format(then="import signal; signal.pause()")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(shared_home),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline().startswith("http://127.0.0.1:")
        [server] = [
            p for p in psutil.Process(command.pid).children() if "flows.prefect_api" in p.cmdline()
        ]
        command.send_signal(signal.SIGKILL)
    server.wait(timeout=30)


@pytest.mark.sweep
def test_a_server_that_does_not_start_is_one_error(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is no database: what went wrong, where the log is, what to do."""
    (own_home / "prefect").mkdir(parents=True)
    (own_home / "prefect" / "prefect.db").write_text("no database " * 100)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(MenagerieError, match="did not start") as caught, prefect_api():
        pass
    assert str(own_home / "prefect" / "server.log") in str(caught.value)
    assert "PREFECT_API_URL" not in os.environ


def test_a_configured_server_is_used(monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    """The server that answers at PREFECT_API_URL is meant; nothing is started."""
    import http.server
    import threading

    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(obj=True).encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        with prefect_api() as used:
            assert used == url
        assert os.environ["PREFECT_API_URL"] == url
        server.shutdown()
    assert not (own_home / "prefect").exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api", "no url", "ftp://host/api"])
def test_a_configured_server_that_is_away(url: str) -> None:
    """One error that names the address and the way out."""
    with pytest.raises(MenagerieError, match="does not answer") as caught:
        probe(url)
    assert str(caught.value).startswith(url)
    assert "unset PREFECT_API_URL" in str(caught.value)
