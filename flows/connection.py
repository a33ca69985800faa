"""Addresses of the Prefect server and store: PREFECT_API_URL, or else the local cluster's.

Without either, Prefect is embedded. On a worker everything is set already, and flows find it in
their environment.

The local cluster's state is in `cluster/state.json` under Menagerie's home, which only its owner
may read. A supervisord, called over a private socket, runs the cluster's processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError, field_serializer

from menagerie.durable import write_durably
from menagerie.paths import home
from zoo.base_models import Frozen
from zoo.errors import MenagerieError

MOST_ATTEMPTS = 3  # for a crashing run, as in infra/automations.yaml
BUCKET = "menagerie"
STORE = f"s3://{BUCKET}/zoo"
ACCESS_KEY = "menagerie:owner"  # not secret; Swift's form is account:user
DATABASE, DATABASE_USER = "postgres", "prefect"  # initdb's default database
# The automations in infra rely on heartbeats of 30 s. A server answers 500 while its database
# refuses writes, e.g. with a full disk; after 503 Prefect retries for a minute by itself.
OF_ALL_WORKERS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
}
_BYTES = 32
_OTHERS = 0o077
_SOCKET_BYTES = 90  # macOS allows 104, and supervisord first uses a longer path


def _fresh_secret() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(_BYTES))


class ClusterState(Frozen):
    """Addresses, secrets and applied deployments of the local cluster; they outlive `down`.

    Processes get the secrets in their environment, not as arguments, which every user can list.
    """

    ports: dict[str, int]  # "api", "database", "worker" (its health) and "s3"
    api_auth: SecretStr  # user:password of Prefect's API and UI
    s3_secret: SecretStr
    database_secret: SecretStr = Field(default_factory=_fresh_secret)  # older files have none
    up: bool = False  # `zoo cluster up` ran, and no `zoo cluster down` since
    applied: str = ""  # digest of the deployments that were applied to the server

    @field_serializer("api_auth", "s3_secret", "database_secret", when_used="json")
    def _revealed(self, secret: SecretStr) -> str:
        return secret.get_secret_value()

    @property
    def ui_url(self) -> str:
        """The UI's address for browsers."""
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def api_url(self) -> str:
        """URL of Prefect's API; the server may be down."""
        return f"{self.ui_url}/api"

    @property
    def s3_endpoint(self) -> str:
        """URL of the store, on loopback, so that browsers open its links without a warning."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    def database_url(self, scheme: str = "postgresql") -> str:
        """Return PostgreSQL's URL with its password, which must not be logged."""
        secret = self.database_secret.get_secret_value()
        return f"{scheme}://{DATABASE_USER}:{secret}@127.0.0.1:{self.ports['database']}/{DATABASE}"

    def environment(self) -> dict[str, str]:
        """Return variables for Prefect and the store; some are secrets that must not be logged."""
        return self.prefect_environment() | self.store_environment()

    def prefect_environment(self) -> dict[str, str]:
        """Return the variables that Prefect reads on import."""
        return {
            "PREFECT_API_URL": self.api_url,
            "PREFECT_API_AUTH_STRING": self.api_auth.get_secret_value(),
            "PREFECT_HOME": str(cluster_folder() / "prefect"),  # ignores the user's profiles
            **OF_ALL_WORKERS,
        }

    def store_environment(self) -> dict[str, str]:
        """Return the variables that `zoo.store` reads."""
        return {
            "MENAGERIE_STORE": STORE,
            "AWS_ENDPOINT_URL_S3": self.s3_endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.s3_secret.get_secret_value(),
            "AWS_SESSION_TOKEN": "",  # the user's belongs to other keys
        }

    @classmethod
    def make(cls, ports: dict[str, int]) -> ClusterState:
        """Return a state with fresh secrets."""
        return cls(
            ports=ports,
            api_auth=SecretStr(f"zoo:{secrets.token_urlsafe(_BYTES)}"),
            s3_secret=_fresh_secret(),
        )

    @classmethod
    def load(cls) -> ClusterState | None:
        """Read the state file; return None if there never was a cluster.

        Raise MenagerieError if other users may read it, or it is damaged.
        """
        path = state_path()
        try:
            others = path.stat().st_mode & _OTHERS
            found = cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValidationError, OSError):  # the cause would show the file's content
            advice = "Run `zoo cluster down`, which ends what it finds, and then `zoo cluster up`"
            raise MenagerieError(str(path), "is not readable as written", advice) from None
        if others:
            advice = f"Run `chmod 600 {path}`, and rotate the keys if others were on this host"
            raise MenagerieError(str(path), "others may read the secrets in it", advice)
        return found

    def save(self) -> None:
        """Write the state file."""
        write_private(state_path(), self.model_dump_json(indent=2) + "\n")


def cluster_folder() -> Path:
    """Return the local cluster's folder: data, logs, state."""
    return home() / "cluster"


def state_path() -> Path:
    """Return the path of the state file, which holds secrets."""
    return cluster_folder() / "state.json"


def manager_socket() -> Path:
    """Return supervisord's socket, in the cluster's folder unless that path is too long."""
    path = cluster_folder() / "manager.sock"
    if len(os.fsencode(path)) <= _SOCKET_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"menagerie-{digest}.sock"


def ask_manager(method: str, *arguments: object) -> Any:
    """Call an XML-RPC method of supervisord, e.g. `startProcess`; OSError if it does not run."""
    from xmlrpc.client import ServerProxy

    from supervisor.xmlrpc import SupervisorTransport

    path = manager_socket()
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} is another user's")
    transport = SupervisorTransport(serverurl=f"unix://{path}")
    with ServerProxy("http://localhost", transport=transport) as manager:
        return getattr(manager.supervisor, method)(*arguments)


def running() -> dict[str, int]:
    """Return the PIDs of the cluster's running processes, by name."""
    try:
        found = ask_manager("getAllProcessInfo")
    except (ImportError, OSError):
        return {}
    return {each["name"]: each["pid"] for each in found if each["pid"]}


def write_private(path: Path, text: str) -> None:
    """Write `text` to `path` with mode 0600; readers see the old file or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp: 0600
    os.close(handle)
    try:
        write_durably(path, text.encode(), partial=Path(name))
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def locked(how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Lock the cluster: for one command that changes it, or with `LOCK_SH` for many readers.

    Raise MenagerieError if another command is changing it.
    """
    cluster_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cluster_folder() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            fact = "is just being started or ended by another command"
            raise MenagerieError("the local cluster", fact, "Wait for it") from None
        yield


def started_cluster() -> ClusterState | None:
    """Return the local cluster if PREFECT_API_URL names it, or is unset and the cluster is up.

    The cluster is not contacted. Raise MenagerieError if it has stopped by itself, or its files are
    damaged.
    """
    named, state = os.environ.get("PREFECT_API_URL"), ClusterState.load()
    if state is None or (named.rstrip("/") != state.api_url if named else not state.up):
        return None
    if "server" not in running():
        fact = "was started, but its server has ended"
        advice = "Run `zoo cluster up` to go on with it, or `zoo cluster down` to work without it"
        with locked(fcntl.LOCK_SH):
            raise MenagerieError("the local cluster", fact, advice)
    return state
