"""The images, really built and run: compose's services, and a conversion by a worker among them.

PostgreSQL, Redis and the S3 server run natively, on the host's loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

import engine
import swift_server
from engine import ROOT, environment_options, run_options
from postgres import AS_OWNER, program
from s3_rights import Key, Rights

from infra.local.cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.container

MODEL = "digits_cnn"
LARGEST = 2.5e9  # bytes of the worker's image
AUTH = "zoo:keeper"
ZOO = Path(sys.executable).with_name("zoo")
WORKER = Key("models:worker", "worker-secret", "worker-policy")
OWNER = Key("models:owner", "owner-secret")
SECONDS = 180.0


@pytest.fixture(scope="session")
def images(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, dict[str, Any]]:
    """Both images, built from the files in git and no others."""
    context = tmp_path_factory.mktemp("context")
    listed = engine.call("git", "-C", ROOT, "ls-files", "-z").split("\0")
    for name in filter(None, listed):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name)
    engine.make_base()
    found = {}
    for target in ("worker", "server"):
        seconds = engine.build(target, context)
        found[target] = engine.image(target)
        line = f"\n{target}: {found[target]['Size'] / 1e9:.2f} GB in {seconds:.0f} s\n"
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            sys.stderr.write(line)
    return found


def compose() -> dict[str, Any]:
    """The services as the file has them, merged."""
    text = (ROOT / "infra" / "compose" / "compose.yaml").read_text()
    found: dict[str, Any] = YAML(typ="safe").load(text)["services"]
    return found


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Poll until it holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"not after {seconds:g} s: {what}")


def answers(address: str) -> bool:
    """Whether a server of this machine does."""
    with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - loopback
        return bool(answer.status)


class Services:
    """Compose's services: ours in containers, the other ones native, all on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("api", "postgres", "redis")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.engine = engine.engine()
        self.native: list[subprocess.Popen[bytes]] = []
        self.containers: list[str] = []
        self.volumes: dict[str, Path] = {}
        self.environment: dict[str, str] = {}  # of the desk

    @property
    def api(self) -> str:
        """Prefect's API."""
        return f"http://127.0.0.1:{self.ports['api']}/api"

    def start_native(self, name: str, command: list[str]) -> None:
        """A server of Debian's."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.native.append(subprocess.Popen(command, stdout=log, stderr=log))

    def start_database(self) -> None:
        """PostgreSQL, which refuses to be root."""
        engine.call(*AS_OWNER, "mkdir", self.folder / "postgres")
        data, port = str(self.folder / "postgres" / "data"), str(self.ports["postgres"])
        engine.call(*program("initdb"), "--auth", "trust", "--username", "prefect", "-D", data)
        options = ["-p", port, "-k", str(self.folder), "-c", "fsync=off"]
        self.start_native("postgres", [*program("postgres"), "-D", data, *options])
        create = program("createdb")
        create += ["-h", "127.0.0.1", "-p", port, "-U", "prefect", "prefect"]
        until(
            lambda: subprocess.run(create, capture_output=True, check=False).returncode == 0, "db"
        )

    def start(self, name: str, values: dict[str, str]) -> None:
        """A service of ours, as compose has it but for addresses."""
        service = compose()[name]
        target = service["build"]["target"]
        for volume in service["volumes"]:
            kept = self.volumes.setdefault(volume.partition(":")[0], self.folder / f"volume-{name}")
            kept.mkdir(exist_ok=True)
            os.chown(kept, 10001, 10001)
        words = [*run_options(service, self.volumes), *engine.LIMITS]
        words += environment_options(service["environment"] | values)
        container = f"menagerie-{os.getpid()}-{name}"
        command = [*self.engine, "run", "--detach", "--network", "host", "--name", container]
        image = f"localhost/menagerie-{target}"
        engine.call(*command, *words, image, *service.get("command", []))
        self.containers.append(container)

    def inside(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in a running container."""
        container = f"menagerie-{os.getpid()}-{name}"
        words = [*self.engine, "exec", container, *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def log(self, name: str) -> str:
        """What a container said."""
        container = f"menagerie-{os.getpid()}-{name}"
        done = subprocess.run(
            [*self.engine, "logs", container], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def close(self) -> None:
        """End all of it."""
        for container in self.containers:
            words = [*self.engine, "rm", "--force", "--time", "5", container]
            subprocess.run(words, capture_output=True, check=False)
        for process in self.native:
            process.terminate()
            process.wait()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """How to reach the S3 server's store with a worker's key."""
    rights = Rights("models", (OWNER, WORKER))
    for server in swift_server.running(tmp_path_factory.mktemp("swift"), rights):
        boto3.client(
            "s3",
            endpoint_url=server.http,
            region_name="us-east-1",
            aws_access_key_id=OWNER.name,
            aws_secret_access_key=OWNER.secret,
        ).create_bucket(Bucket="models")
        yield {
            "MENAGERIE_STORE": "s3://models/zoo",
            "AWS_ENDPOINT_URL_S3": server.http,
            "AWS_ACCESS_KEY_ID": WORKER.name,
            "AWS_SECRET_ACCESS_KEY": WORKER.secret,
        }


@pytest.fixture(scope="module")
def services(images: dict[str, dict[str, Any]], store: dict[str, str]) -> Iterator[Services]:
    """The API, the background services and the worker in containers."""
    folder = Path("/var/tmp") / f"menagerie-services-{os.getpid()}"  # pytest's is root's alone
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    made = Services(folder)
    try:
        made.start_database()
        redis = ["redis-server", "--port", str(made.ports["redis"]), "--bind", "127.0.0.1"]
        made.start_native("redis", [*redis, "--dir", str(folder), "--save", ""])
        database = f"postgresql+asyncpg://prefect@127.0.0.1:{made.ports['postgres']}/prefect"
        addresses = {
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(made.ports["api"]),
            "PREFECT_SERVER_API_AUTH_STRING": AUTH,
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
            "PREFECT_REDIS_MESSAGING_HOST": "127.0.0.1",
            "PREFECT_REDIS_MESSAGING_PORT": str(made.ports["redis"]),
            "PREFECT_SERVER_DOCKET_URL": f"redis://127.0.0.1:{made.ports['redis']}/1",
        }
        made.start("server", addresses)
        until(lambda: answers(f"{made.api}/health"), "the API answers")
        made.start("services", addresses)
        known = {"PREFECT_API_URL": made.api, "PREFECT_API_AUTH_STRING": AUTH}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MENAGERIE"))}
        made.environment = kept | known | store | {"MENAGERIE_HOME": str(folder / "desk")}
        apply = [sys.executable, "-m", "infra.apply"]
        done = subprocess.run(
            apply, env=made.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        made.start("worker", known | store)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_images_are_small_and_run_without_root(images: dict[str, dict[str, Any]]) -> None:
    """No CUDA, no tools of developers, no root; the server's has no torch at all."""
    assert images["worker"]["Size"] < LARGEST
    assert images["server"]["Size"] < LARGEST / 2
    for known in images.values():
        assert known["Config"]["User"] == "menagerie"
        assert set(known["Config"]["Volumes"]) == {"/var/lib/menagerie"}
    packages = "/opt/menagerie/.venv/lib/python3.11/site-packages"
    run = [*engine.engine(), "run", "--rm", "--network", "host", *engine.LIMITS]
    worker = engine.call(*run, "localhost/menagerie-worker", "ls", packages).split()
    server = engine.call(*run, "localhost/menagerie-server", "ls", packages).split()
    assert "torch" in worker
    assert not {"pytest", "playwright", "mypy", "ruff", "cmake"} & set(worker)
    assert not {"torch", "transformers", "ziglang"} & set(server)
    assert "prefect_redis" in server
    library = "/opt/menagerie/.venv/lib"
    copies = engine.call(
        *run, "localhost/menagerie-worker", "find", library, "-name", "libdnnl*", "-type", "f"
    )
    assert len(copies.split()) == 1, "the kernel library, once"


def test_compose_converts(services: Services) -> None:
    """A worker without rights on a root that it cannot write converts for both targets."""
    command = [ZOO, "convert", MODEL, "--target", "cpu", "--target", "metal", "--json"]
    done = subprocess.run(
        command, env=services.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr + services.log("worker")[-3000:]
    rows = {row["target"]: row for row in json.loads(done.stdout)["results"]}
    assert {target: (row["outcome"], row["proof"]) for target, row in rows.items()} == {
        "cpu": ("published", "validated"),
        "metal": ("published", "emulated"),
    }
    assert services.inside("worker", "id", "-u").stdout.strip() == "10001"
    assert services.inside("worker", "touch", "/opt/menagerie/x").returncode != 0
    assert list((services.volumes["worker"] / "home" / "zig").glob("*/global/*"))


def test_events_go_through_redis(services: Services) -> None:
    """Automations live in another process than the API: what happened must reach it."""
    from redis import Redis

    with Redis(port=services.ports["redis"]) as redis:
        until(lambda: redis.exists("events"), "the stream of events")
        [groups] = [redis.xinfo_groups("events")]
    assert {group["name"] for group in groups} >= {b"reactive-triggers"}
