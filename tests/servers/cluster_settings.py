"""supervisord's settings of a process of the local cluster, read as supervisord reads them."""

from __future__ import annotations

import configparser
import platform
import shlex

from supervisor.datatypes import dict_of_key_value_pairs

from flows.connection import ClusterState
from infra.local.supervision import PORTS, configuration


def program(name: str, state: ClusterState) -> tuple[list[str], dict[str, str]]:
    """Its command, and its variables without those that hold secrets."""
    parser = configparser.RawConfigParser()
    parser.read_string(configuration(state))
    values = dict_of_key_value_pairs(parser[f"program:{name}"]["environment"])
    command = parser[f"program:{name}"]["command"].replace("%(host_node_name)s", platform.node())
    return shlex.split(command), values


def database_settings() -> dict[str, str]:
    """How long a server waits for its database."""
    ports = dict.fromkeys(PORTS.values(), 1)
    _, values = program("server", ClusterState.make(ports))
    prefix = "PREFECT_SERVER_DATABASE_"
    return {name: value for name, value in values.items() if name.startswith(prefix)}
