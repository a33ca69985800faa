"""Which server is meant, what reaches its processes, and what is never shown."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

import pytest
from cluster_settings import program
from pydantic import SecretStr

from flows.cli import invoke
from flows.cli.options import store_url, use_cluster
from flows.connection import ClusterState, locked, started_cluster
from flows.prefect_api import prefect_api
from infra.local import supervision
from infra.local.cluster import apply_wanted, ask, log_path, up
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS = {"api": 4200, "worker": 1, "s3": 2, "database": 3}


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def saved(*, up: bool = False) -> ClusterState:
    """A state in its file."""
    state = ClusterState.make(PORTS).model_copy(update={"up": up})
    state.save()
    return state


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the cluster runs."""
    for place in ("flows.connection.running", "infra.local.cluster.running"):
        monkeypatch.setattr(place, lambda: {"server": os.getpid()})


def test_no_server_is_meant() -> None:
    """Neither named nor started: Prefect is embedded. After `zoo cluster down` too."""
    assert started_cluster() is None
    saved()
    assert started_cluster() is None


@pytest.mark.usefixtures("runs")
def test_a_named_server_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """PREFECT_API_URL wins over a cluster that runs, and its secret is left to Prefect."""
    saved(up=True)
    url = "https://prefect.example.org/api"
    monkeypatch.setattr(os, "environ", {**os.environ, "PREFECT_API_URL": url})
    monkeypatch.setattr("flows.prefect_api.probe", lambda _: None)
    assert started_cluster() is None
    with prefect_api() as meant:
        assert meant == url
    assert os.environ["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert os.environ["PREFECT_CLIENT_RETRY_EXTRA_CODES"] == "500"
    assert "PREFECT_API_AUTH_STRING" not in os.environ


@pytest.mark.usefixtures("runs")
def test_a_running_cluster_is_meant() -> None:
    """Its server and its store, with what a process needs to use them."""
    state = saved(up=True)
    found = started_cluster()
    assert found is not None
    values = found.environment()
    assert values["PREFECT_API_URL"] == "http://127.0.0.1:4200/api"
    assert values["PREFECT_API_AUTH_STRING"] == state.api_auth.get_secret_value()
    assert values["MENAGERIE_STORE"] == "s3://menagerie/zoo"
    assert values["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:2"
    assert values["AWS_SECRET_ACCESS_KEY"] == state.s3_secret.get_secret_value()
    assert state.s3_secret.get_secret_value() not in repr(found)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("theirs", "store"),
    [
        ({}, "s3://menagerie/zoo"),
        ({"MENAGERIE_STORE": "s3://menagerie/zoo"}, "s3://menagerie/zoo"),
        ({"MENAGERIE_STORE": "/srv/store"}, "/srv/store"),
        ({"AWS_ENDPOINT_URL_S3": "https://s3.example.org"}, None),
        ({"AWS_ENDPOINT_URL": "https://s3.example.org"}, None),
        ({"AWS_SECRET_ACCESS_KEY": "theirs"}, "s3://menagerie/zoo"),
    ],
)
def test_variables_of_a_store_stay_together(
    theirs: dict[str, str], store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's store is never asked at another's address, nor with another's keys."""
    state = saved(up=True)
    monkeypatch.setattr(os, "environ", {**os.environ, **theirs})
    found = use_cluster(lambda cluster: cluster.environment())
    assert found is not None
    assert os.environ["PREFECT_API_URL"] == found.api_url
    assert os.environ.get("MENAGERIE_STORE") == store
    ours = os.environ.get("AWS_SECRET_ACCESS_KEY") == state.s3_secret.get_secret_value()
    assert ours == (store == "s3://menagerie/zoo")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("named", "known"),
    [("s3://menagerie/zoo", True), ("s3://team/zoo", False), ("/srv/store", False)],
)
def test_the_store_of_a_page_is_reached_by_its_address(
    named: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by --store, the cluster's own brings its endpoint and keys along; no other does."""
    saved(up=True)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert store_url(named) == named
    assert ("AWS_SECRET_ACCESS_KEY" in os.environ) == known


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("command", [["gc"], ["pull", "digits_cnn"]])
def test_a_command_that_names_the_store_keeps_its_endpoint(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a page prints it: what is opened is the cluster's server, with its keys."""
    state = saved(up=True)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    opened = []

    def objects(name: str, prefix: str) -> None:
        opened.append((f"s3://{name}/{prefix}", dict(os.environ)))
        raise MenagerieError(name, "is opened")

    for opener in ("zoo.store._bucket", "menagerie.store._bucket"):  # what writes, what reads
        monkeypatch.setattr(opener, objects)
    assert invoke([*command, "--store", "s3://menagerie/zoo"]) == 1
    [(url, values)] = opened
    assert (url, values["AWS_ENDPOINT_URL_S3"]) == ("s3://menagerie/zoo", "http://127.0.0.1:2")
    assert values["AWS_SECRET_ACCESS_KEY"] == state.s3_secret.get_secret_value()


@pytest.mark.usefixtures("runs")
def test_another_s3_store_is_not_for_the_workers_of_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They have no keys to it: misuse, said before any server is asked."""
    saved(up=True)
    team = {"AWS_ENDPOINT_URL_S3": "https://s3.example.org", "MENAGERIE_STORE": "s3://team/zoo"}
    monkeypatch.setattr(os, "environ", {**os.environ, **team})
    assert invoke(["convert", "resnet18", "--random-weights", "0"]) == 2
    said = capfd.readouterr().err
    assert "s3://team/zoo" in said
    assert "--local" in said


def test_a_cluster_that_ended_by_itself() -> None:
    """After the host's restart: an error that says how to go on, with it or without it."""
    saved(up=True)
    with pytest.raises(MenagerieError, match=r"`zoo cluster up`.*`zoo cluster down`"):
        started_cluster()


def test_a_cluster_that_is_being_started() -> None:
    """Its server is not there yet: that is no end of it."""
    saved(up=True)
    with locked(), pytest.raises(MenagerieError, match="is just being started"):
        started_cluster()


def given_to(name: str, state: ClusterState) -> dict[str, str]:
    """All variables of a process, secrets included."""
    given = program(name, state)[1] | supervision.secrets_of(name, state)
    return supervision.child_environment(given)


def test_the_server_is_closed_to_strangers() -> None:
    """Authentication and CSRF protection on, analytics off, loopback only, own origins only."""
    state = saved()
    values = given_to("server", state)
    assert values["PREFECT_SERVER_API_AUTH_STRING"] == state.api_auth.get_secret_value()
    assert values["PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED"] == "true"
    assert values["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert values["PREFECT_SERVER_API_HOST"] == "127.0.0.1"
    origins = values["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"]
    assert origins == "http://127.0.0.1:4200,http://localhost:4200"


def test_every_variable_is_one_that_prefect_knows() -> None:
    """A misspelt one would be ignored in silence."""
    import prefect.settings

    state = saved()
    values = given_to("server", state) | given_to("worker", state)
    ours = [name for name in values if name.startswith("PREFECT_")]
    assert len(ours) > 15
    assert [name for name in ours if not hasattr(prefect.settings, name)] == []
    assert not hasattr(prefect.settings, "PREFECT_SERVER_NO_SUCH_THING")


def test_secrets_reach_the_processes_that_need_them_and_no_file() -> None:
    """All users of a host can list arguments; supervisord's file holds none either."""
    state = saved()
    given = [" ".join(supervision.secrets_of(name, state).values()) for name in supervision.PORTS]
    for secret, holders in (
        (state.s3_secret, [True, False, False, True]),
        (state.database_secret, [False, True, True, False]),
        (state.api_auth, [False, False, True, True]),
    ):
        assert secret.get_secret_value() not in supervision.configuration(state)
        assert [secret.get_secret_value() in each for each in given] == holders


def test_two_commands_do_not_change_a_cluster_at_once() -> None:
    """The second is refused at once."""
    with locked(), pytest.raises(MenagerieError, match="another"), locked():
        pass


@pytest.mark.usefixtures("runs")
def test_a_running_cluster_keeps_its_port() -> None:
    """Another one is misuse while it runs, before anything is touched."""
    before = saved(up=True)
    with pytest.raises(UsageError, match="zoo cluster down"):
        up(port=4300)
    assert ClusterState.load() == before


def test_a_taken_port_is_named() -> None:
    """Whatever listens there is not touched; nothing of ours is left running."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports = {**PORTS, "s3": port}
        ClusterState.make(ports).save()
        with pytest.raises(MenagerieError, match=f"port {port}: is taken"):
            up()
    after = ClusterState.load()
    assert after is not None
    assert not after.up


@pytest.mark.usefixtures("runs")
def test_a_port_of_another_of_ours_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that asks for it there gets it; the other process has a new one."""
    monkeypatch.setattr("infra.local.cluster.running", dict)
    ClusterState.make(PORTS).save()
    monkeypatch.setattr("infra.local.cluster.start_manager", lambda _: pytest.fail("started"))
    monkeypatch.setattr("infra.local.cluster.is_free", lambda each: each not in PORTS.values())
    with pytest.raises(MenagerieError, match="is taken"):
        up(port=PORTS["s3"])
    after = ClusterState.load()
    assert after is not None
    assert after.ports["api"] == PORTS["s3"]
    assert len(set(after.ports.values())) == len(PORTS)


def test_a_server_that_takes_nothing_in_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What applies the deployments is ended, and the log is named; no traceback."""

    def never(command: list[str], *, timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr("infra.local.cluster.subprocess.run", never)
    state = saved(up=True)
    log_path("apply").parent.mkdir()
    to_nowhere = state.model_copy(update={"ports": {**PORTS, "api": 9}})
    with pytest.raises(MenagerieError, match=r"deployments: .*apply\.log"):
        apply_wanted(to_nowhere)


def test_status_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Unhealthy, with the command to run; JSON as any."""
    assert invoke(["cluster", "status", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["healthy"]
    assert [check["advice"] for check in found["checks"]] == ["Run `zoo cluster up`"]


def cluster_at(port: int) -> ClusterState:
    """One whose server listens there, with a known secret."""
    made = ClusterState.make(PORTS | {"api": port})
    return made.model_copy(update={"api_auth": SecretStr("zoo:hush")})


@contextmanager
def answering(code: int, body: bytes = b"{}") -> Iterator[tuple[ClusterState, list[str]]]:
    """A server that always answers the same, and the headers it was sent."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield cluster_at(made.server_port), seen
        made.shutdown()
        thread.join()


def test_questions_carry_the_secret() -> None:
    """As HTTP's Basic scheme has it, RFC 7617."""
    with answering(200, b'{"a": 1}') as (cluster, seen):
        assert ask(cluster, "/x") == {"a": 1}
    assert seen == ["Basic " + base64.b64encode(b"zoo:hush").decode()]


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [(401, b"", "401"), (503, b"", "503"), (200, b"<html>", "expecting value")],
)
def test_invalid_answers(code: int, body: bytes, said: str) -> None:
    """A refusal, a broken server, something that is no Prefect: one reason each."""
    with (
        answering(code, body) as (cluster, _),
        pytest.raises(MenagerieError, match=re.escape(said)),
    ):
        ask(cluster, "/x")


def test_an_answer_that_breaks_off_is_invalid() -> None:
    """What HTTP's own parser refuses is a silent server too, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(MenagerieError):
            ask(cluster_at(listener.getsockname()[1]), "/x")
        thread.join()


def test_what_the_server_does_not_know() -> None:
    """404 is an answer; a closed port is not."""
    with answering(404) as (cluster, _):
        assert ask(cluster, "/x") is None
    with pytest.raises(MenagerieError):
        ask(cluster, "/x")
