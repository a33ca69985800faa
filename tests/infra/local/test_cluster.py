"""A whole local cluster, from `zoo cluster up` to `down`; the tests build on one another."""

# ruff: noqa: S310 - every address is one of loopback
from __future__ import annotations

import asyncio
import base64
import json
import os
import platform
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
sys.path.insert(0, str(Path(__file__).parent))

import asyncpg
import psutil
import pytest
from cluster_settings import program
from s3_rights import Key
from second_machine import GUEST, NAME, SecondMachine, kill_family, rights

from flows.connection import ClusterState, ask_manager, running
from infra.local.cluster import free_ports
from infra.local.supervision import POOL, child_environment, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.cluster

MODEL = "digits_cnn"
CONVERSION_SECONDS = 600.0
ZOO = Path(sys.executable).with_name("zoo")
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
PARTS = ("s3", "database", "server", "deployments", "worker")


@dataclass
class Cluster:
    """The cluster under test, as a user sees it."""

    home: Path

    def zoo(self, *arguments: str, **exports: str) -> subprocess.CompletedProcess[str]:
        """Run a command line, as a user who configured nothing but these variables."""
        return self.run(ZOO, *arguments, **exports)

    def run(self, *command: str | Path, **exports: str) -> subprocess.CompletedProcess[str]:
        """Run any command with that user's environment."""
        foreign = ("PREFECT_", "MENAGERIE_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        own = {"MENAGERIE_HOME": str(self.home), "HOME": str(self.home / "user")}
        return subprocess.run(
            command,
            env={**kept, **own, **exports},
            capture_output=True,
            text=True,
            check=False,
            timeout=CONVERSION_SECONDS,
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        """What a command says with --json."""
        done = self.zoo(*arguments, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    @property
    def state(self) -> dict[str, Any]:
        """The state file."""
        found: dict[str, Any] = json.loads((self.home / "cluster" / "state.json").read_text())
        return found

    @property
    def secrets(self) -> dict[str, str]:
        """The secrets, by name."""
        return {name: self.state[name] for name in ("api_auth", "s3_secret", "database_secret")}

    @property
    def older(self) -> Path:
        """SQLite file of a cluster that an older version ran."""
        return self.home / "cluster" / "prefect" / "prefect.db"

    @property
    def api(self) -> str:
        """Prefect's API."""
        return f"http://127.0.0.1:{self.state['ports']['api']}/api"

    @property
    def processes(self) -> dict[str, int]:
        """The ids of what runs, by name."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MENAGERIE_HOME", str(self.home))
            return running()

    def kill(self, *names: str) -> None:
        """SIGKILL."""
        for name in names:
            process = psutil.Process(self.processes[name])
            process.kill()
            process.wait(timeout=30)

    def ask(
        self, path: str, body: object = None, *, method: str = "", auth: str | None = None
    ) -> Any:
        """Ask the API with our own secret, or another, as a browser would; POST with a body."""
        word = base64.b64encode((auth or self.secrets["api_auth"]).encode()).decode()
        headers = {"Authorization": f"Basic {word}", "Content-Type": "application/json"}
        method = method or ("GET" if body is None else "POST")
        if method != "GET":
            client = str(uuid.uuid4())
            token = request(f"{self.api}/csrf-token?client={client}", headers)["token"]
            headers |= {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}
        return request(f"{self.api}{path}", headers, body, method)


def request(
    url: str, headers: dict[str, str], body: object = None, method: str | None = None
) -> Any:
    """GET, or POST with a body; the answer's JSON."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers, method=method), timeout=60
    ) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def refused(url: str, headers: dict[str, str], body: object = None) -> int:
    """The code with which a request is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        request(url, headers, body)
    caught.value.close()
    return caught.value.code


def eventually(what: Callable[[], Any], seconds: float) -> Any:
    """What it gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(1.0)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that the first test brings up."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    (made.home / "user").mkdir()
    made.older.parent.mkdir(mode=0o700, parents=True)
    made.older.write_bytes(b"runs of an older version")
    yield made
    made.zoo("down")


def started(cluster: Cluster) -> list[str]:
    """What `zoo cluster up` starts; that it also applies code that was just edited is fine."""
    return [part for part in cluster.json("up")["changed"] if part != "deployments"]


def test_up_brings_it_up_and_then_changes_nothing(cluster: Cluster) -> None:
    """All five parts; a second time nothing, and the same processes run."""
    assert cluster.json("up")["changed"] == list(PARTS)
    before, processes = cluster.state, cluster.processes
    assert started(cluster) == []
    assert cluster.processes == processes
    assert cluster.state["ports"] == before["ports"]
    said = cluster.zoo("up").stdout
    assert "nothing to change" in said
    assert str(cluster.older) in said
    assert cluster.older.read_bytes() == b"runs of an older version"


def test_status_is_well(cluster: Cluster) -> None:
    """Every part well, or busy on a busy machine; exit code 0, addresses of UI and store."""
    found = cluster.json("status")
    assert found["healthy"]
    assert [check["name"] for check in found["checks"]] == list(PARTS)
    assert {check["health"] for check in found["checks"]} <= {"ok", "warn"}
    assert found["store"] == "s3://menagerie/zoo"
    with urllib.request.urlopen(found["ui"], timeout=30) as page:
        assert b"<title>" in page.read()


def test_the_server_refuses_strangers(cluster: Cluster) -> None:
    """No secret or a wrong one: 401. The right one without a CSRF token: no change, 403."""
    filters = "/deployments/filter"
    assert refused(f"{cluster.api}/deployments/count", {}, {}) in (401, 403)
    assert refused(f"{cluster.api}/admin/version", {}) == 401
    with pytest.raises(urllib.error.HTTPError, match="401"):
        cluster.ask("/admin/version", auth="zoo:guess")
    word = base64.b64encode(cluster.secrets["api_auth"].encode()).decode()
    basic = {"Authorization": f"Basic {word}", "Content-Type": "application/json"}
    assert refused(f"{cluster.api}{filters}", basic, {}) == 403
    assert len(cluster.ask(filters, {})) >= 4


def test_the_store_is_there_for_signed_requests_and_for_no_other_host(cluster: Cluster) -> None:
    """A request without the key, or with a wrong one, is refused; it listens on loopback alone."""
    port = cluster.state["ports"]["s3"]
    url = f"http://127.0.0.1:{port}/menagerie"
    assert refused(url, {"Authorization": "AWS menagerie:owner:guess"}) == 403
    # Without any key it is no request of S3's, and Swift knows no such path.
    assert refused(url, {}) in (401, 403, 412)
    listening = [c.laddr for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening if address.port == port} == {"127.0.0.1"}


def test_schedules_are_in_the_scheduler(cluster: Cluster) -> None:
    """The weekly and the nightly run are in the list of what is to come."""

    def scheduled() -> set[str]:
        runs = cluster.ask(
            "/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
        )
        flows = {flow["id"]: flow["name"] for flow in cluster.ask("/flows/filter", {})}
        return {flows[run["flow_id"]] for run in runs}

    wanted = {"convert-zoo", "verify-releases", "collect-garbage", "rebuild-release"}
    wanted |= {"confirm-releases"}
    eventually(lambda: scheduled() >= wanted, 120)


def test_a_schedule_of_one_minute_converts_and_publishes(cluster: Cluster) -> None:
    """The scheduler starts it, a worker does it, and the release is in the store."""
    deployment = cluster.ask("/deployments/name/convert-model/convert-model")["id"]
    place = f"/deployments/{deployment}/schedules"
    schedule = {"active": True, "schedule": {"interval": 60.0}, "parameters": {"model": MODEL}}
    [made] = cluster.ask(place, [schedule])
    first = eventually(lambda: runs_of(cluster, deployment, *FINAL), 900)
    cluster.ask(f"{place}/{made['id']}", method="DELETE")
    assert first[0]["state"]["type"] == "COMPLETED", first[0]["state"]["message"]
    assert first[0]["auto_scheduled"]
    assert first[0]["name"] == f"{MODEL} for cpu"
    releases = cluster.json("show", MODEL)["releases"]
    assert [release["target"] for release in releases] == ["cpu"]


def runs_of(cluster: Cluster, deployment: str, *types: str) -> list[dict[str, Any]]:
    """Runs of a deployment in one of these states, the oldest first."""
    wanted = {
        "flow_runs": {
            "deployment_id": {"any_": [deployment]},
            "state": {"type": {"any_": list(types)}},
        },
        "sort": "START_TIME_ASC",
    }
    found: list[dict[str, Any]] = cluster.ask("/flow_runs/filter", wanted)
    return found


def test_a_conversion_goes_through_a_worker(cluster: Cluster) -> None:
    """`zoo convert` gives its table, and the run of a worker is on the server.

    The build was published before: it is proven again, and the store keeps its release.
    """
    done = cluster.zoo("convert", MODEL, "--target", "cpu", "--force", "--json")
    table = json.loads(done.stdout)
    [row] = table["results"]
    shown = [f"{MODEL} for cpu: {stage['stage']} " for stage in row["stages"]]
    assert [line for line in shown if line not in done.stderr] == []
    [address] = [line for line in done.stderr.splitlines() if line.startswith("run  ")]
    assert f"http://127.0.0.1:{cluster.state['ports']['api']}/runs/flow-run/" in address
    assert (row["outcome"], row["kept"] is not None) == ("proven anew", True)
    assert "lower" in [stage["stage"] for stage in row["stages"]]
    assert table["store"] == "s3://menagerie/zoo"
    names = [run["name"] for run in cluster.ask("/flow_runs/filter", {"sort": "START_TIME_DESC"})]
    assert any(MODEL in name for name in names)


def test_a_shell_with_the_two_exports_converts(cluster: Cluster) -> None:
    """As infra/README has them: the cluster and its store are meant."""
    exports = {"PREFECT_API_URL": cluster.api, "PREFECT_API_AUTH_STRING": cluster.state["api_auth"]}
    done = cluster.zoo("convert", MODEL, "--json", **exports)
    table = json.loads(done.stdout)
    assert (table["store"], table["results"][0]["outcome"]) == ("s3://menagerie/zoo", "skipped")


def test_a_run_is_submitted_without_waiting(cluster: Cluster) -> None:
    """`--no-wait` prints the run's address and ends; a worker does the run."""
    [run] = cluster.json("convert", MODEL, "--force", "--no-wait")["submitted"]
    assert run["name"] == f"{MODEL} for cpu"
    assert run["address"].endswith(f"/runs/flow-run/{run['run']}")
    path = f"/flow_runs/{run['run']}"
    eventually(lambda: cluster.ask(path)["state"]["type"] == "COMPLETED", CONVERSION_SECONDS)
    done = cluster.zoo("convert", MODEL, "--no-wait", "--local")
    assert (done.returncode, "needs a server" in done.stderr) == (2, True)


def test_a_burst_of_submissions_is_taken(cluster: Cluster) -> None:
    """200 at once: each is taken once, and the status says *busy* meanwhile, within 10 s."""
    script = Path(__file__).parents[3] / "benchmarks" / "burst.py"
    done = cluster.run(sys.executable, script, "--model", MODEL, "--json")
    figures = json.loads(done.stdout)
    assert (figures["taken"], figures["twice"], figures["busy"]) == (200, 0, True), figures
    assert figures["slowest_status_seconds"] <= 10.0
    assert done.returncode == 0
    eventually(lambda: cluster.zoo("status").returncode == 0, 120)


def test_a_process_is_restarted_alone(cluster: Cluster) -> None:
    """It alone has another id, and its log says that it began."""
    before = cluster.processes
    [old] = cluster.json("logs", "database").values()
    cluster.json("restart", "database")
    after = cluster.processes
    assert {name for name in after if after[name] != before[name]} == {"database"}
    [log] = cluster.json("logs", "database").values()
    assert any("ready to accept connections" in line for line in log if line not in old)
    assert "is not a process" in cluster.zoo("logs", "worm").stderr


def test_what_only_a_mac_can_confirm_waits_until_one_comes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both targets are published; the Metal release is confirmed when its pool has a worker.

    The worker that comes here is no Mac: it emulates, so the release stays *emulated*.
    """
    table = cluster.json("convert", MODEL, "--target", "cpu", "--target", "metal")
    proofs = {row["target"]: row["proof"] for row in table["results"]}
    assert proofs == {"cpu": "validated", "metal": "emulated"}
    deployment = cluster.ask("/deployments/name/confirm-releases/confirm-releases")["id"]
    waiting = cluster.ask(f"/deployments/{deployment}/create_flow_run", {})
    monkeypatch.setenv("MENAGERIE_HOME", str(cluster.home))
    state = ClusterState.load()
    assert state is not None
    [port] = free_ports(1)
    command, values = program("worker", state)
    with (cluster.home / "mac.log").open("wb") as log:
        mac = subprocess.Popen(
            [sys.executable, *(word.replace(POOL, "macos-metal") for word in command[4:])],
            env=child_environment(
                {
                    **values,
                    **secrets_of("worker", state),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "PREFECT_WORKER_WEBSERVER_PORT": str(port),
                }
            ),
            stdout=log,
            stderr=log,
        )
    try:
        [ended] = eventually(lambda: runs_of(cluster, deployment, *FINAL), CONVERSION_SECONDS)
    finally:
        mac.kill()  # asked to end just as its run does, Prefect's worker can wait for ever
        mac.wait()
    assert (ended["id"], ended["state"]["type"]) == (waiting["id"], "COMPLETED")
    [metal] = [r for r in cluster.json("show", MODEL)["releases"] if r["target"] == "metal"]
    assert metal["state"] == "emulated"


def test_a_form_cannot_run_foreign_code(cluster: Cluster, tmp_path: Path) -> None:
    """Allowed by the form but not by the worker's operator: refused, and nothing of it ran."""
    (tmp_path / "evil.py").write_text(
        f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "from torch import nn\ndef build(): return nn.Linear(3, 3)\n"
    )
    (tmp_path / "evil.yaml").write_text(
        "version: 1\nfamily: evil\nmodels:\n  evil:\n    summary: x\n"
        "    source: {kind: factory, builder: 'evil:build'}\n"
        "    programs:\n      - inputs: [{name: x, shape: [1, 3]}]\n"
        "    targets: [cpu]\n    licence: {spdx: Apache-2.0}\n"
    )
    options = {"allow_factories": True, "manifest": str(tmp_path), "random_weights": 0}
    deployment = cluster.ask("/deployments/name/convert-batch/convert-batch")["id"]
    parameters = {"models": ["evil"], "target": "cpu", "options": options}
    run = cluster.ask(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
    eventually(
        lambda: [
            r for r in runs_of(cluster, deployment, "COMPLETED", "FAILED") if r["id"] == run["id"]
        ],
        300,
    )
    states = {"type": {"any_": ["COMPLETED", "FAILED"]}}  # the server notes a task's end later
    wanted = {"task_runs": {"name": {"any_": ["evil for cpu"]}, "state": states}}
    [ended] = eventually(lambda: cluster.ask("/task_runs/filter", wanted), 60)
    assert ended["state"]["type"] == "FAILED"
    assert not (tmp_path / "ran").exists()
    assert "code from outside Menagerie" in ended["state"]["message"]
    logs = cluster.ask("/logs/filter", {"sort": "TIMESTAMP_DESC", "limit": 200})
    assert any("MENAGERIE_ALLOW_FACTORIES" in log["message"] for log in logs)
    asked = ("convert", "evil", "--manifest", str(tmp_path), "--random-weights", "0")
    [refused] = cluster.json(*asked, code=1)["results"]
    assert (refused["outcome"], (tmp_path / "ran").exists()) == ("failed", False)
    cluster.zoo(*asked, "--allow-factories")  # by the worker's own operator
    assert (tmp_path / "ran").exists()


def test_what_died_comes_back(cluster: Cluster) -> None:
    """By itself, as it was: the rest is left alone, and nothing is forgotten."""
    before = cluster.processes
    cluster.kill("s3", "database", "server", "worker")
    eventually(
        lambda: "starting again" in cluster.json("status", code=1)["checks"][2]["detail"], 10
    )
    eventually(lambda: cluster.zoo("status").returncode == 0, 180)
    after = cluster.processes
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert started(cluster) == []
    assert len(cluster.json("show", MODEL)["releases"]) >= 1


def test_a_second_machine_joins(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine is lost once while it converts, and the other one completes the run.

    What the second one made waits as a candidate, since its key releases nothing; both are listed.
    """
    monkeypatch.setenv("MENAGERIE_HOME", str(cluster.home))
    state = cluster.state
    first, second = f"{MODEL}_int8_weight_only", f"{MODEL}_int4_weight_only"
    port, folder = state["ports"]["s3"], cluster.home / "cluster" / "s3"
    guest = SecondMachine(
        {
            "PREFECT_API_URL": cluster.api,
            "PREFECT_API_AUTH_STRING": cluster.secrets["api_auth"],
            "MENAGERIE_STORE": "s3://menagerie/zoo",
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": GUEST.name,
            "AWS_SECRET_ACCESS_KEY": GUEST.secret,
        }
    )

    def submitted(model: str) -> str:
        [run] = cluster.json("convert", model, "--no-wait")["submitted"]
        eventually(lambda: at_work(run["run"]), 180)
        return str(run["run"])

    def at_work(run: str) -> bool:
        tasks = {"flow_runs": {"id": {"any_": [run]}}}
        return any("lower" in task["name"] for task in cluster.ask("/task_runs/filter", tasks))

    def completed(run: str) -> bool:
        found = cluster.ask(f"/flow_runs/{run}")
        return (found["state"]["type"], found["run_count"]) == ("COMPLETED", 2)

    def online() -> str:
        [check] = [c for c in cluster.json("status", code=1)["checks"] if c["name"] == "worker"]
        return str(check["detail"])

    ask_manager("stopProcess", "s3")
    owner = Key("menagerie:owner", state["s3_secret"])
    try:
        with rights(folder, port, owner, cluster.home / "guarded.log"):
            guest.start()
            eventually(lambda: NAME in online() and platform.node() in online(), 180)
            ask_manager("stopProcess", "worker")
            run = submitted(first)
            guest.kill()
            ask_manager("startProcess", "worker")
            eventually(lambda: completed(run), CONVERSION_SECONDS)

            run = submitted(second)
            guest.start()
            kill_family(cluster.processes["worker"])
            ask_manager("stopProcess", "worker")  # supervisord would start it again
            eventually(lambda: completed(run), CONVERSION_SECONDS)
    finally:
        guest.end()
    cluster.json("up")
    for model, waiting in ((first, 0), (second, 1)):
        found = cluster.json("release", "list", model)
        assert (len(found["candidates"]), len(found["ledgers"])) == (waiting, 1 - waiting)


def test_what_was_stopped_is_named_and_healed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 and names, in a line; `zoo cluster up` starts what is missing."""
    monkeypatch.setenv("MENAGERIE_HOME", str(cluster.home))
    for name in ("worker", "server"):
        ask_manager("stopProcess", name)
    found = cluster.json("status", code=1)
    down = {check["name"]: check for check in found["checks"] if check["health"] == "fail"}
    assert set(down) >= {"server", "worker"}
    assert (down["worker"]["detail"], down["worker"]["advice"]) == (
        "has ended",
        "Run `zoo cluster up`",
    )
    done = cluster.zoo("convert", MODEL)
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert "`zoo cluster up`" in line
    before = cluster.processes
    assert started(cluster) == ["server", "worker"]
    assert before.items() <= cluster.processes.items()
    assert cluster.json("status")["healthy"]


def test_a_run_that_down_ended_runs_again(cluster: Cluster) -> None:
    """It is in the queue at once, and the next `zoo cluster up` completes it."""
    deployment = cluster.ask("/deployments/name/convert-model/convert-model")["id"]
    parameters = {"model": MODEL, "options": {"force": True}}
    run = cluster.ask(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})

    def state() -> str:
        name: str = cluster.ask(f"/flow_runs/{run['id']}")["state"]["name"]
        return name

    eventually(lambda: state() == "Running", 120)
    cluster.json("down")
    cluster.json("up")
    eventually(lambda: state() == "Completed", CONVERSION_SECONDS)
    assert cluster.ask(f"/flow_runs/{run['id']}")["run_count"] == 2


async def make_due(url: str, runs: list[str]) -> None:
    """Move runs of a weekly schedule into the past, by as many weeks as there are runs."""
    database = await asyncpg.connect(url)
    weeks = f"interval '{len(runs)} weeks'"
    for run in runs:
        await database.execute(
            "update flow_run set expected_start_time = expected_start_time - "  # noqa: S608
            f"{weeks}, next_scheduled_start_time = next_scheduled_start_time - {weeks}"
            " where id = $1",
            run,
        )
        await database.execute(
            "update flow_run_state set state_details = jsonb_set(state_details::jsonb,"  # noqa: S608
            " '{scheduled_time}', to_jsonb((state_details->>'scheduled_time')::timestamptz"
            f" - {weeks})) where flow_run_id = $1",
            run,
        )
    await database.close()


def test_days_down_are_made_up_for_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of one schedule became due: one does it, the others are cancelled."""
    cluster.json("up")
    deployment = cluster.ask("/deployments/name/collect-garbage/collect-garbage")["id"]
    planned = eventually(lambda: runs_of(cluster, deployment, "SCHEDULED"), 120)
    assert len(planned) == 3
    monkeypatch.setenv("MENAGERIE_HOME", str(cluster.home))
    for name in ("worker", "server"):
        ask_manager("stopProcess", name)
    state = ClusterState.load()
    assert state is not None
    asyncio.run(make_due(state.database_url(), [run["id"] for run in planned]))
    cluster.json("up")
    ids = {run["id"] for run in planned}

    def ended() -> list[dict[str, Any]]:
        found = [run for run in runs_of(cluster, deployment, *FINAL) if run["id"] in ids]
        return found if len(found) == len(ids) else []

    runs = sorted(eventually(ended, 300), key=lambda run: run["expected_start_time"])
    assert sorted(run["state"]["name"] for run in runs) == ["Cancelled", "Cancelled", "Completed"]


def test_no_secret_is_anywhere(cluster: Cluster) -> None:
    """Not in a log, a file, the database, an answer, an argument: only in the one file."""
    secrets = cluster.secrets
    secrets["password"] = secrets["api_auth"].partition(":")[2]
    allowed = {cluster.home / "cluster" / "state.json"}
    for path in cluster.home.rglob("*"):
        if path.is_file() and path not in allowed:
            content = path.read_bytes()
            for name, secret in secrets.items():
                assert secret.encode() not in content, f"{name} is in {path}"
    said = cluster.zoo("status", "--json").stdout + cluster.zoo("up").stdout
    for path in (
        "/variables/filter",
        "/artifacts/filter",
        "/flow_runs/filter",
        "/block_documents/filter",
    ):
        said += json.dumps(cluster.ask(path, {}))
    said += json.dumps(cluster.ask("/work_pools/linux-cpu")) + json.dumps(
        cluster.ask("/admin/settings")
    )
    said += " ".join(" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    for name, secret in secrets.items():
        assert secret not in said, name


def test_down_leaves_nothing(cluster: Cluster) -> None:
    """No process of ours, no port; a second time nothing to do; nothing outside our folder."""
    ports = cluster.state["ports"]
    mark = f"MENAGERIE_HOME={cluster.home}\0"
    assert set(cluster.json("down")["ended"]) >= {"worker", "server", "database", "s3"}
    left = [pid for pid in psutil.pids() if mark.encode() in environment_of(pid)]
    assert left == []
    for port in ports.values():
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    assert cluster.json("down") == {"ended": []}
    assert cluster.json("status", code=1)["healthy"] is False
    assert list((cluster.home / "user").iterdir()) == []


def environment_of(pid: int) -> bytes:
    """A process's environment; empty if it is gone or another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
