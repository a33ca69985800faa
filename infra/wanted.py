"""The configuration of a server: deployments in `prefect.yaml`, pools, automations in `infra`.

A local cluster and a team's server use the same files; `prefect deploy` reads prefect.yaml too.
Prefect itself is not imported, so that `zoo cluster status` answers at once.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from zoo.errors import UsageError

TIME_ZONE = "MENAGERIE_TIMEZONE"  # also used in prefect.yaml
NOTIFY = "MENAGERIE_NOTIFY"  # an Apprise URL for notifications of failures

_ROOT = Path(__file__).parents[1]
_CODE = ("flows", "zoo")  # their forms and the lists of models become part of deployments


class Wanted:
    """The files of one checkout, read on demand; raises UsageError if one cannot be read."""

    def __init__(self, root: Path = _ROOT) -> None:
        self.deployment_file = root / "prefect.yaml"  # for `prefect deploy --prefect-file`
        self.pool_file = root / "infra" / "work_pools.yaml"
        self._infra = root / "infra"

    @cached_property
    def work_pools(self) -> dict[str, dict[str, Any]]:
        """Work pools by name, as Prefect's API takes them, with `queues` by name."""
        return dict(_read(self.pool_file)["work_pools"])

    @cached_property
    def pod_template(self) -> dict[str, Any]:
        """The base job template of pools that start pods."""
        return dict(_read(self._infra / "kubernetes" / "base-job-template.json"))

    @cached_property
    def automations(self) -> list[dict[str, Any]]:
        """Automations as Prefect's API takes them."""
        return list(_read(self._infra / "automations.yaml")["automations"])

    @cached_property
    def deployments(self) -> tuple[str, ...]:
        """All deployments as `flow/name`; a flow has its function's name, with hyphens."""
        return tuple(
            f"{each['entrypoint'].rpartition('.')[2].replace('_', '-')}/{each['name']}"
            for each in _read(self.deployment_file)["deployments"]
        )

    @cached_property
    def digest(self) -> str:
        """A digest of everything that is applied to a server."""
        files = [self.deployment_file, *self._infra.glob("*.yaml")]
        files += self._infra.glob("kubernetes/*.json")
        for package in _CODE:
            for pattern in ("*.py", "*.yaml", "*.toml"):
                files += (_ROOT / package).rglob(pattern)
        contents = [f"{f.name} {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files]
        contents += [time_zone(), os.environ.get(NOTIFY, "")]
        return hashlib.sha256("\n".join(sorted(contents)).encode()).hexdigest()


def time_zone() -> str:
    """Return the schedules' zone: MENAGERIE_TIMEZONE, this machine's or UTC; or UsageError."""
    asked = os.environ.get(TIME_ZONE)
    if asked is None:
        place = Path("/etc/localtime").resolve()
        asked = str(place).partition("/zoneinfo/")[2] or "UTC"
    try:
        ZoneInfo(asked)
    except (ZoneInfoNotFoundError, ValueError) as error:
        advice = "Name one as Europe/Berlin is; `timedatectl list-timezones` lists them"
        raise UsageError(TIME_ZONE, f"{asked!r} is not a time zone", advice) from error
    return asked


def _read(path: Path) -> Any:
    try:
        return YAML(typ="safe").load(path)
    except (OSError, YAMLError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(str(path), f"cannot be read ({first})") from error
