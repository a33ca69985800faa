"""What is known of the local cluster between two commands: `cluster/state.json` under our home.

It holds no secret: those lie in a file of their own (see `credentials`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.cluster.private_file import write_private
from menagerie.home import home
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BUCKET", "ClusterState", "Database", "ProcessRecord", "cluster_folder", "state_path"]

BUCKET = "menagerie"

Port = Field(ge=1, le=65535)


class Database(StrEnum):
    """Where Prefect's server keeps its runs."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class ProcessRecord(BaseModel):
    """A process of ours. Ids are given anew, so the moment of its start belongs to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int = Field(ge=1)
    started: str  # see `zoo.processes.birth`


class ClusterState(BaseModel):
    """Addresses, processes and what was applied; ports outlive `zoo down`.

    `processes` is empty while the cluster is down.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: Database
    ports: dict[str, int]  # "api", "worker" (its health), "s3" and the other processes of Swift
    processes: dict[str, ProcessRecord] = {}
    applied: str = ""  # digest of the deployments that the server was told of

    @property
    def up(self) -> bool:
        """Whether `zoo up` has been, and no `zoo down` since."""
        return bool(self.processes)

    @property
    def ui_url(self) -> str:
        """The address to open in a browser."""
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def api_url(self) -> str:
        """Prefect's API."""
        return f"{self.ui_url}/api"

    @property
    def s3_endpoint(self) -> str:
        """The S3 server; its certificate is signed by `cluster_folder() / "tls" / "ca.pem"`."""
        return f"https://localhost:{self.ports['s3']}"

    @property
    def store(self) -> str:
        """The store in that server."""
        return f"s3://{BUCKET}/zoo"

    @classmethod
    def load(cls) -> ClusterState | None:
        """Read the file; None if there never was a cluster.

        Raises:
            MenagerieError: if it is not what was written.
        """
        path = state_path()
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValidationError, OSError) as error:
            advice = "Run `zoo down`, which ends what it can find, and then `zoo up`"
            raise MenagerieError(str(path), "is not readable as written", advice) from error

    def save(self) -> None:
        """Write the file."""
        write_private(state_path(), self.model_dump_json(indent=2) + "\n")


def cluster_folder() -> Path:
    """Everything of the local cluster lies here: data, logs, certificates, state."""
    return home() / "cluster"


def state_path() -> Path:
    """Where the state lies."""
    return cluster_folder() / "state.json"
