"""A team's installation by the steps of `infra/README.md`, on hosts of one machine.

Services are what the systemd units say, with settings from the example files filled in.
"""

from __future__ import annotations

import configparser
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

import trustme
from hosts import BIN, ROOT, STATE, Host, Network
from postgres import program
from s3_rights import Key, Rights
from swift_server import command as s3_command
from swift_server import environment as s3_environment

if TYPE_CHECKING:
    from collections.abc import Callable

INFRA = ROOT / "infra"
HERE = Path(__file__).parent
PYTHON = str(BIN / "python")
AUTH = "zoo:keeper"  # of a server that lives for one test run
BUCKET = "models"
START_SECONDS = 180.0

MAKE_BUCKET = """
import sys
from zoo.store import open_store
open_store(sys.argv[1]).objects.ensure_bucket()
"""
ASK = """
import json, sys
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    answer = client.request(sys.argv[1], sys.argv[2], json=json.loads(sys.argv[3]))
    answer.raise_for_status()
    print(answer.text)
"""


def settings_of(unit: str, instance: str, host: Host) -> tuple[list[str], dict[str, str]]:
    """A unit's command and its own environment, for this checkout and this host's folder."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = (INFRA / "systemd" / unit).read_text()
    parser.read_string(text)
    lines = text.splitlines()
    given = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]

    def here(words: str) -> str:
        words = words.replace("/opt/menagerie/.venv/bin", str(BIN))
        words = words.replace("/opt/menagerie", str(ROOT)).replace("/var/lib/menagerie", str(STATE))
        return words.replace("%i", instance).replace("%H", host.name)

    command = shlex.split(here(parser["Service"]["ExecStart"]))
    return command, dict(here(each).split("=", 1) for each in given)


def filled_in(example: str, values: dict[str, str]) -> dict[str, str]:
    """A file of settings with values of this place; what is the same everywhere stays."""
    lines = (INFRA / example).read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    filled = {name: values.get(name, value) for name, value in given.items()}
    assert not [value for value in filled.values() if "REPLACE" in value or "example" in value]
    return filled


class Team:
    """A server with its store and a desk; workers join."""

    def __init__(self, folder: Path) -> None:
        self.network = Network(folder / "hosts")
        self.hub = self.network.add("hub")
        self.desk = self.network.add("desk", MENAGERIE_HOME=str(STATE / "home"))
        self.keys = {
            name: Key(f"models:{name}", f"{name}-secret", policy)
            for name, policy in {
                "owner": None,
                "promoter": "operator-policy",
                "worker": "worker-policy",
                "reader": "reader-policy",
            }.items()
        }
        authority = trustme.CA(organization_name="A team's")
        issued = authority.issue_cert(self.hub.address)
        issued.private_key_pem.write_to_path(self.hub.folder / "server.key")
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.hub.folder / "server.pem", append=True)
        self.authority = authority.cert_pem.bytes()
        self.api = f"https://{self.hub.address}/api"
        self.endpoint = f"https://{self.hub.address}:9000"
        self.store = f"s3://{BUCKET}/zoo"

    def trusting(self, host: Host) -> dict[str, str]:
        """The team's authority, as a host learns of it."""
        (host.folder / "ca.pem").write_bytes(self.authority)
        place = str(STATE / "ca.pem")
        return {"PREFECT_API_SSL_CERT_FILE": place, "AWS_CA_BUNDLE": place}

    def settings(self, host: Host, key: str) -> dict[str, str]:
        """What `worker.env` asks for, with one of the store's keys."""
        values = {
            "PREFECT_API_URL": self.api,
            "PREFECT_API_AUTH_STRING": AUTH,
            "MENAGERIE_STORE": self.store,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.keys[key].name,
            "AWS_SECRET_ACCESS_KEY": self.keys[key].secret,
        }
        return filled_in("container/worker.env.example", values) | self.trusting(host)

    def found(self) -> None:
        """Steps 1 to 3: the store with its policies, database and server, and its deployments."""
        hub = self.hub
        tls = f"{hub.address}:9000,{STATE}/server.pem,{STATE}/server.key"
        rights = Rights(BUCKET, tuple(self.keys.values()), tls_only=True)
        hub.start("s3", s3_command(STATE / "s3", tls), **s3_environment(rights))
        self._database()
        command, environment = settings_of("menagerie-server.service", "", hub)
        values = {
            "PREFECT_SERVER_API_AUTH_STRING": AUTH,
            "PREFECT_SERVER_UI_API_URL": self.api,
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": self.api.removesuffix("/api"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": (
                f"postgresql+asyncpg://prefect@{hub.address}:5432/prefect"
            ),
        }
        environment |= filled_in("compose/server.env.example", values)
        hub.start("server", command, **environment)
        proxy = [PYTHON, str(HERE / "tls_proxy.py"), f"{STATE}/server.pem", f"{STATE}/server.key"]
        hub.start("proxy", [*proxy, f"{hub.address}:443", "127.0.0.1:4200"])
        owner = self.settings(self.desk, "owner")
        self.until(lambda: not self._said(MAKE_BUCKET, self.store, **owner), "there is a bucket")
        self.until(lambda: self.ask("GET", "/health") is True, "the server answers")
        done = self.desk.run(PYTHON, "-m", "infra.apply", **owner, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stderr[-3000:]

    def _database(self) -> None:
        """PostgreSQL, of which nothing but the address is Menagerie's business."""
        place, address = self.hub.folder / "postgres", self.hub.address
        place.mkdir()
        data = f"{STATE}/postgres/data"
        self.hub.run("chown", "postgres", f"{STATE}/postgres")
        initialise = [*program("initdb"), "--auth", "trust", "--username", "prefect", "-D", data]
        made = self.hub.run(*initialise)
        assert made.returncode == 0, made.stderr
        trusted = f"local all prefect trust\nhost all prefect {address}/32 trust\n"
        (place / "data" / "pg_hba.conf").write_text(trusted)
        options = [
            "-k",
            f"{STATE}/postgres",
            "-c",
            f"listen_addresses={address}",
            "-c",
            "fsync=off",
        ]
        self.hub.start("postgres", [*program("postgres"), "-D", data, *options])
        create = [*program("createdb"), "-h", address, "-U", "prefect", "prefect"]
        self.until(lambda: self.hub.run(*create).returncode == 0, "there is a database")

    def add_worker(self, host: Host, pool: str = "linux-cpu") -> None:
        """Step 4: the unit on a host."""
        command, environment = settings_of("menagerie-worker@.service", pool, host)
        host.start(pool, command, **environment, **self.settings(host, "worker"))
        self.until(lambda: f"{host.name} {pool}" in self.online(pool), f"{host.name} serves {pool}")

    def online(self, pool: str) -> list[str]:
        """The workers of a pool with a recent heartbeat."""
        found = self.ask("POST", f"/work_pools/{pool}/workers/filter", {})
        return [worker["name"] for worker in found if worker["status"] == "ONLINE"]

    def zoo(self, *words: str, key: str = "promoter") -> str:
        """A command at the desk, which must go well; what it prints."""
        done = self.desk.run(str(BIN / "zoo"), *words, **self.settings(self.desk, key))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A question to the server, from the desk."""
        said = self._said(ASK, method, path, json.dumps(body), **self.settings(self.desk, "reader"))
        return json.loads(said)

    def _said(self, program: str, *words: str, **environment: str) -> str:
        done = self.desk.run(PYTHON, "-c", program, *words, **environment)
        if done.returncode != 0:
            raise ConnectionError(done.stderr[-1000:])
        return done.stdout

    def runs(self, flow: str) -> list[dict[str, Any]]:
        """All runs of a flow, the oldest first."""
        wanted = {"flows": {"name": {"any_": [flow]}}, "sort": "START_TIME_ASC"}
        found: list[dict[str, Any]] = self.ask("POST", "/flow_runs/filter", wanted)
        return found

    def until(
        self, condition: Callable[[], object], what: str, seconds: float = START_SECONDS
    ) -> None:
        """Poll until it holds."""
        end, last = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                if condition():
                    return
            except ConnectionError as error:
                last = str(error)
            time.sleep(0.5)
        sys.stderr.write(last)
        raise AssertionError(f"not after {seconds:g} s: {what}")
