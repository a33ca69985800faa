"""Which Prefect server and store are meant: those that PREFECT_API_URL names, else `zoo up`'s.

Where neither is there, Prefect is embedded. On a worker all is set already, and flows find
everything in their environment.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from flows.local_cluster import (
    ACCESS_KEY,
    ClusterState,
    Credentials,
    cluster_folder,
    credentials_path,
    running,
)
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["OF_ALL_WORKERS", "Connection", "Origin", "connection", "local_connection"]

# The automations in infra count on heartbeats of 30 s. A server answers 500 as long as its database
# takes nothing, its disk being full, say; 503 is asked again for a minute by itself.
OF_ALL_WORKERS = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
}


class Origin(StrEnum):
    """How we know of the server."""

    ENVIRONMENT = "environment"  # PREFECT_API_URL
    LOCAL_CLUSTER = "local cluster"  # `zoo up`


@dataclass(frozen=True)
class Connection:
    """How to reach a Prefect server, and the store its workers publish to.

    Attributes:
        origin: how we know of it.
        api_url: of Prefect's API, e.g. http://127.0.0.1:4200/api.
        auth: `user:password` for the API; None: it asks for none.
        store: URL of its workers' store; None: `MENAGERIE_STORE` or the default decides.
        s3_endpoint, s3_secret: of the store, where it is the local cluster's.
    """

    origin: Origin
    api_url: str
    auth: SecretStr | None = None
    store: str | None = None
    s3_endpoint: str | None = None
    s3_secret: SecretStr | None = None

    def environment(self) -> dict[str, str]:
        """Variables for Prefect, and for the store where it is the local cluster's.

        They hold secrets: for the environment of a process, never for a log.
        """
        return self.prefect_environment() | self.store_environment()

    def prefect_environment(self) -> dict[str, str]:
        """What Prefect reads when it is imported."""
        values = {"PREFECT_API_URL": self.api_url, **OF_ALL_WORKERS}
        if self.origin is Origin.LOCAL_CLUSTER:  # else a profile of the user's may hold the secret
            values["PREFECT_HOME"] = str(cluster_folder() / "prefect")
        if self.auth is not None:
            values["PREFECT_API_AUTH_STRING"] = self.auth.get_secret_value()
        return values

    def store_environment(self) -> dict[str, str]:
        """What `zoo.store` reads; empty where the environment decides already."""
        if self.store is None or self.s3_endpoint is None or self.s3_secret is None:
            return {}
        return {
            "MENAGERIE_STORE": self.store,
            "MENAGERIE_S3_ENDPOINT": self.s3_endpoint,
            "MENAGERIE_S3_ACCESS_KEY": ACCESS_KEY,
            "MENAGERIE_S3_SECRET_KEY": self.s3_secret.get_secret_value(),
        }


def connection() -> Connection | None:
    """The server that is meant; None if nobody named or started one. Nothing is asked of it yet.

    Raises:
        MenagerieError: if the local cluster has ended by itself, or its files are damaged.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return Connection(Origin.ENVIRONMENT, url)  # Prefect finds its secret where this one was
    state = ClusterState.load()
    if state is None or not state.up:
        return None
    if "server" not in running():
        fact = "was started, but its server has ended"
        advice = "Run `zoo up` to go on with it, or `zoo down` to work without it"
        raise MenagerieError("the local cluster", fact, advice)
    credentials = Credentials.load()
    if credentials is None:
        advice = "Run `zoo down` and `zoo up`"
        fact = "the secrets of the running cluster are gone"
        raise MenagerieError(str(credentials_path()), fact, advice)
    return local_connection(state, credentials)


def local_connection(state: ClusterState, credentials: Credentials) -> Connection:
    """The connection to the local cluster, whether it runs or not."""
    return Connection(
        Origin.LOCAL_CLUSTER,
        api_url=state.api_url,
        auth=credentials.api_auth,
        store=state.store,
        s3_endpoint=state.s3_endpoint,
        s3_secret=credentials.s3_secret,
    )
