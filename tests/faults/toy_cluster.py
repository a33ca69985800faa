"""A Prefect server on PostgreSQL and workers of a test, as processes that it may kill."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from cluster_settings import database_settings

from flows.connection import OF_ALL_WORKERS, ClusterState
from infra.local.cluster import free_ports, is_free
from infra.local.supervision import secrets_of
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).parent
INFRA = HERE.parents[1] / "infra"
AUTH = "zoo:keeper"  # of a server that lives for one test run
CLAIM_SECONDS = 60
START_SECONDS = 180.0

APPLY = """
import sys
from pathlib import Path
from infra.apply import main
from infra.wanted import Wanted
sys.exit(main(Wanted(Path(sys.argv[1]))))
"""

ENTRY = """
  {name}:
    summary: {summary}
    source: {{kind: torchvision, builder: resnet18}}
    programs:
      - inputs: [{{name: x, shape: [1, 3]}}]
    licence: {{spdx: Apache-2.0}}
    targets: [{targets}]
    tags: [default]
"""


class ToyCluster:
    """One server, workers by pool, a store and a manifest, all under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.store = str(folder / "store")
        self.manifest = folder / "manifest"
        self.manifest.mkdir()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.changes: dict[str, str] = {}  # of the environment of what starts from now on
        self.prefix: tuple[str, ...] = ()  # words before the command of what starts from now on
        self.port, self.database_port = free_ports(2)
        made = ClusterState.make({"database": self.database_port})
        self.secrets = secrets_of("database", made) | secrets_of("server", made)
        self.secrets["PREFECT_SERVER_API_AUTH_STRING"] = AUTH
        self.database = folder / "database"
        self.url = f"http://127.0.0.1:{self.port}/api"

    def environment(self) -> dict[str, str]:
        """For the server, workers and clients: nothing of the developer's own Prefect."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MENAGERIE"))}
        return {
            **kept,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(HERE),
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_API_AUTH_STRING": AUTH,
            "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            **OF_ALL_WORKERS,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            **database_settings(),
            **self.secrets,
            "PREFECT_RUNNER_POLL_FREQUENCY": "2",
            "MENAGERIE_HOME": str(self.folder / "home"),
            "MENAGERIE_TEST_NOTES": str(self.notes),
            **self.changes,
        }

    def write_manifest(self, **summaries: str) -> None:
        """The zoo's models and what they do; one that ends in `_metal` is for both targets."""
        text = "".join(
            ENTRY.format(
                name=name,
                summary=summary,
                targets="cpu, metal" if name.endswith("_metal") else "cpu",
            )
            for name, summary in summaries.items()
        )
        file = self.manifest / "toys.yaml"
        file.write_text(f"version: 1\nfamily: toys\nmodels:{text}")

    def start_server(self) -> None:
        """Start it, on the same database as before, and wait until it answers."""
        if "database" not in self.processes:
            command = ["-m", "infra.local.database", str(self.database), str(self.database_port)]
            self.start("database", command)
            self.wait_for(lambda: not is_free(self.database_port), "the database listens")
        command = ["-m", "prefect", "--no-prompt", "server", "start", "--port", str(self.port)]
        self.start("server", command)
        self.wait_for(lambda: self.get("/health") is not None, "the server answers")

    def apply(self) -> None:
        """Apply pools, deployments and automations to the server: ours, with toys as entrypoints.

        A claimed run counts as lost after seconds, since no test has ten minutes.
        """
        folder = self.folder / "checkout"
        (folder / "infra").mkdir(parents=True, exist_ok=True)
        (folder / "infra" / "work_pools.yaml").write_text((INFRA / "work_pools.yaml").read_text())
        automations = (INFRA / "automations.yaml").read_text()
        assert "within: 600" in automations
        hurried = automations.replace("within: 600", f"within: {CLAIM_SECONDS}")
        (folder / "infra" / "automations.yaml").write_text(hurried)
        text = (INFRA.parent / "prefect.yaml").read_text()
        for flow in ("convert_zoo", "convert_model", "convert_batch", "confirm_releases"):
            text, found = re.subn(rf"\bflows\.\w+\.{flow}\b", f"toy_flows.{flow}", text)
            assert found, f"no deployment of {flow}"
        (folder / "prefect.yaml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", APPLY, str(folder)],
            env=self.environment(),
            cwd=HERE.parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def start_worker(self, name: str = "worker", pool: str = "linux-cpu") -> None:
        """Start a worker and wait until the server has its heartbeat."""
        self.start(name, ["-m", "prefect", "worker", "start", "--pool", pool, "--name", name])
        self.wait_for(lambda: name in self.online(pool), f"worker {name} is online")

    def online(self, pool: str) -> list[str]:
        """The workers of a pool with a recent heartbeat."""
        found = self.post(f"/work_pools/{pool}/workers/filter", {})
        return [worker["name"] for worker in found if worker["status"] == "ONLINE"]

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start a Python process in a group of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.prefix, sys.executable, *arguments],
                env=self.environment(),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def convert(self, name: str = "convert", *models: str, **arguments: Any) -> None:
        """Start the parent flow in a process of its own, on no worker."""
        options = {"manifest": str(self.manifest), "store": self.store, "random_weights": 0}
        options |= arguments.pop("options", {})
        call = json.dumps({"models": list(models), "options": options, **arguments})
        self.result(name).unlink(missing_ok=True)
        self.start(name, [str(HERE / "toy_parent.py"), call, str(self.result(name))])

    def result(self, name: str = "convert") -> Path:
        """Where a parent's table is written."""
        return self.folder / f"{name}.json"

    def table(self, name: str = "convert", seconds: float = 240.0) -> dict[str, dict[str, Any]]:
        """The rows of a parent that was started, by model and target, when it has ended."""
        code = self.processes[name].wait(seconds)
        log = (self.folder / f"{name}.log").read_text()[-3000:]
        assert code == 0, log
        rows = json.loads(self.result(name).read_text())["results"]
        return {f"{row['model']} {row['target']}": row for row in rows}

    def submit(
        self, deployment: str, parameters: dict[str, Any], state: dict[str, Any] | None = None
    ) -> str:
        """Have a deployment run, at once or as `state` says; its id."""
        found = self.get(f"/deployments/name/{deployment}")
        path = f"/deployments/{found['id']}/create_flow_run"
        run: str = self.post(path, {"parameters": parameters, "state": state})["id"]
        return run

    def state(self, run: str) -> str:
        """The name of a run's state."""
        name: str = self.get(f"/flow_runs/{run}")["state"]["name"]
        return name

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """All runs of a flow."""
        body = {"flows": {"name": {"any_": [flow]}}, "limit": 200}
        found: list[dict[str, Any]] = self.post("/flow_runs/filter", body)
        return found

    def batches(self) -> list[dict[str, Any]]:
        """This test's runs of convert-batch: those for its store."""
        found = self.runs("convert-batch")
        return [r for r in found if r["parameters"]["options"]["store"] == self.store]

    def tasks(self, run: str) -> list[dict[str, Any]]:
        """The task runs of a run."""
        body = {"flow_runs": {"id": {"any_": [run]}}, "limit": 200}
        found: list[dict[str, Any]] = self.post("/task_runs/filter", body)
        return found

    def noted(self, model: str, target: str = "cpu") -> list[str]:
        """What the benches of a model wrote down."""
        file = self.notes / f"{model}-{target}"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for(
        self, condition: Callable[[], object], what: str, seconds: float = START_SECONDS
    ) -> None:
        """Poll until it holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(OSError, urllib.error.URLError):
                if condition():
                    return
            time.sleep(0.2)
        raise AssertionError(f"not after {seconds:g} s: {what}")

    def heal(self) -> None:
        """Start again what a test before has killed."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                del self.processes[name]
        if "server" not in self.processes:
            self.start_server()
        if "worker" not in self.processes:
            self.start_worker()

    def end_runs(self) -> None:
        """Cancel what a test left behind, so that the next one finds the workers free."""
        for flow in ("convert-zoo", "convert-batch", "convert-model", "confirm-releases"):
            for run in self.runs(flow):
                if run["state_type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                    state = {"state": {"type": "CANCELLED", "name": "Cancelled"}, "force": True}
                    self.post(f"/flow_runs/{run['id']}/set_state", state)

    def is_running(self, pid: int) -> bool:
        """Whether a process is alive; a zombie is not."""
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def flow_process(self, model: str, target: str = "cpu") -> psutil.Process:
        """The process of the flow that converts a model: the parent of the model's."""
        self.wait_for(lambda: self.noted(model, target), f"{model} is being lowered")
        held = psutil.Process(int(self.noted(model, target)[-1].split()[0]))
        return held.parent()

    def flow_processes(self) -> list[psutil.Process]:
        """The processes in which the worker runs flows."""
        worker = psutil.Process(self.processes["worker"].pid)
        return worker.children()

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all its descendants, as when its host is lost."""
        process = self.processes.pop(name)
        family = [process.pid]
        with suppress(psutil.NoSuchProcess):  # it ended by itself
            family += [c.pid for c in psutil.Process(process.pid).children(recursive=True)]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill_alone(self, name: str) -> None:
        """SIGKILL to that process only."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all that was started."""
        for name in list(self.processes):
            if self.processes[name].poll() is None:
                self.kill(name)

    def get(self, path: str) -> Any:
        """A question to the server."""
        return self._ask(urllib.request.Request(self.url + path))  # noqa: S310 - of loopback

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """A request with a body."""
        client = str(uuid.uuid4())
        token = self.get(f"/csrf-token?client={client}")["token"]
        headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": client}
        url, data = self.url + path, json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
        return self._ask(urllib.request.Request(url, data, headers))  # noqa: S310 - of loopback

    def _ask(self, request: urllib.request.Request) -> Any:
        word = base64.b64encode(AUTH.encode()).decode()
        request.add_header("Authorization", f"Basic {word}")
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            text = answer.read()
        return json.loads(text) if text else None


def running(folder: Path) -> Iterator[ToyCluster]:
    """A cluster with one worker, ended afterwards."""
    cluster = ToyCluster(folder)
    try:
        cluster.start_server()
        cluster.apply()
        cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def published(cluster: ToyCluster) -> list[str]:
    """The models that are published and whole."""
    store = open_store(cluster.store)
    found = store.releases()
    assert all(store.held([release.names]) for release in found)
    return [release.model for release in found]
