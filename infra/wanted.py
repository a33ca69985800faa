"""What a server is told: deployments from `prefect.yaml`, pools and automations from `infra`.

The same files serve a local cluster and a team's server: `prefect deploy` reads prefect.yaml too.
"""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from zoo.base_models import Frozen
from zoo.errors import UsageError

TIME_ZONE = "MENAGERIE_TIMEZONE"  # prefect.yaml names it too
NOTIFY = "MENAGERIE_NOTIFY"  # an Apprise URL: who is notified of failures

_CODE = ("flows", "zoo")  # their forms, and the models to choose from, become part of deployments


class PoolType(StrEnum):
    """What a pool's workers start for a run, by Prefect's names: those we have a template for."""

    PROCESS = "process"
    KUBERNETES = "kubernetes"


class Queue(Frozen):
    """A queue of a work pool; lower priorities are served first."""

    priority: int = Field(ge=1)
    concurrency_limit: int | None = Field(default=None, ge=1)
    description: str = ""


class WorkPool(Frozen):
    """A work pool, for workers of one platform."""

    type: PoolType
    description: str
    concurrency_limit: int | None = Field(default=None, ge=1)
    queues: dict[str, Queue]


class _WorkPools(Frozen):
    work_pools: dict[str, WorkPool]


class DeploymentName(Frozen):
    """What Prefect calls a deployment: `flow/name`."""

    flow: str
    name: str
    pool: str

    def __str__(self) -> str:
        return f"{self.flow}/{self.name}"


class Wanted:
    """The files of one checkout, read when asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._infra = root / "infra"

    @property
    def deployment_file(self) -> Path:
        """As `prefect deploy --prefect-file` wants it."""
        return self._root / "prefect.yaml"

    @cached_property
    def work_pools(self) -> dict[str, WorkPool]:
        """Work pools by name."""
        path = self._infra / "work_pools.yaml"
        try:
            return _WorkPools.model_validate(_read(path)).work_pools
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise UsageError(f"{path}: {where}", fault["msg"]) from error

    @cached_property
    def pod_template(self) -> dict[str, Any]:
        """The base job template of pools that start pods."""
        found: dict[str, Any] = _read(self._infra / "kubernetes" / "base-job-template.json")
        return found

    @cached_property
    def automations(self) -> list[dict[str, Any]]:
        """Automations as Prefect's API takes them."""
        found: list[dict[str, Any]] = _read(self._infra / "automations.yaml")["automations"]
        return found

    @cached_property
    def deployments(self) -> tuple[DeploymentName, ...]:
        """The names of all deployments; a flow is called like its function, with hyphens."""
        return tuple(
            DeploymentName(
                flow=each["entrypoint"].rpartition(".")[2].replace("_", "-"),
                name=each["name"],
                pool=each["work_pool"]["name"],
            )
            for each in self._deployed
        )

    @cached_property
    def _deployed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = _read(self.deployment_file)["deployments"]
        return found

    @cached_property
    def digest(self) -> str:
        """Changes with everything that a server would be told otherwise."""
        root = Path(__file__).parents[1]
        files = [self.deployment_file, *self._infra.glob("*.yaml")]
        files += self._infra.glob("kubernetes/*.json")
        for package in _CODE:
            for pattern in ("*.py", "*.yaml", "*.toml"):
                files += (root / package).rglob(pattern)
        contents = [f"{f.name} {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files]
        contents += [time_zone(), os.environ.get(NOTIFY, "")]
        return hashlib.sha256("\n".join(sorted(contents)).encode()).hexdigest()


def time_zone() -> str:
    """The zone of the schedules' hours: `MENAGERIE_TIMEZONE`, else this machine's, else UTC.

    Raises:
        UsageError: there is no zone of that name.
    """
    asked = os.environ.get(TIME_ZONE)
    if asked is None:
        place = Path("/etc/localtime").resolve()
        asked = str(place).partition("/zoneinfo/")[2] or "UTC"
    try:
        ZoneInfo(asked)
    except (ZoneInfoNotFoundError, ValueError) as error:
        advice = "Name one as Europe/Berlin is; `timedatectl list-timezones` lists them"
        raise UsageError(TIME_ZONE, f"{asked!r} is no time zone", advice) from error
    return asked


def load_wanted() -> Wanted:
    """What the files that come with Menagerie say.

    Raises:
        UsageError: if it is not there.
    """
    root = Path(__file__).parents[1]
    if not (root / "prefect.yaml").exists():
        raise UsageError(
            str(root),
            "the files of the cluster are not there",
            "Run from a checkout, `make setup`",
        )
    return Wanted(root)


def _read(path: Path) -> Any:
    try:
        return YAML(typ="safe").load(path)
    except (OSError, YAMLError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(str(path), f"cannot be read ({first})") from error
