"""Configuration of a Prefect server for Menagerie: `python -m infra.apply`.

Work pools and queues, deployments, automations and recipients of failure notifications, from
`prefect.yaml` and the files in `infra`, are applied to the server that PREFECT_API_URL names.
Existing objects are updated to what the files say; limits changed in the UI are reset too, since
the files are the source of truth.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import httpx
from apprise import Apprise
from prefect.blocks.notifications import SlackWebhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate, WorkQueueCreate
from prefect.events.schemas.automations import AutomationCore
from prefect.workers.process import ProcessWorker
from pydantic import SecretStr, ValidationError

from infra.wanted import NOTIFY, TIME_ZONE, Wanted, time_zone
from zoo.errors import MenagerieError, UsageError, explain

_COMMAND = "python -m flows.prefect_api run"
_OURS = {"description", "concurrency_limit", "base_job_template"}  # of a pool
_QUEUE = {"description": "", "priority": 1}  # a server accepts no null for these
_NOTIFICATIONS = "menagerie-notify"  # the block's name, in place of its id in automations.yaml
_BLOCK = "block_document_id"


def main(wanted: Wanted) -> int:
    """Apply everything to the configured server; return the exit code, with reasons on stderr."""
    try:
        if not os.environ.get("PREFECT_API_URL"):
            raise UsageError("PREFECT_API_URL", "is not set", "Set it to the server's API")
        block = _notification_block()
        with get_client(sync_client=True) as client:
            apply_pools(client, wanted)
            deploy(wanted)
            for automation in wanted.automations:
                named = [a for a in automation["actions"] if a.get(_BLOCK) == _NOTIFICATIONS]
                for action in named:
                    action[_BLOCK] = block
                if block or not named:
                    _apply_automation(client, automation)
    except (MenagerieError, httpx.HTTPError) as error:
        ours = explain(error, os.environ.get("PREFECT_API_URL", ""))
        print(ours, file=sys.stderr)  # noqa: T201 - this is a program
        return ours.exit_code
    return 0


def apply_pools(client: SyncPrefectClient, wanted: Wanted) -> None:
    """Create or update pools and queues; raise UsageError before any change if one is invalid."""
    known = {pool.name: pool.type for pool in client.read_work_pools()}
    pools, queues = [], {}
    for name, pool in wanted.work_pools.items():
        said, kind = {**pool}, pool.get("type")
        try:
            rules = said.pop("queues", {})
            queues[name] = [WorkQueueCreate(name=q, **_QUEUE | rule) for q, rule in rules.items()]
            template = _job_template(kind, wanted)
            pools.append(WorkPoolCreate(name=name, base_job_template=template, **said))
        except (ValidationError, LookupError) as error:
            fact = f"{name} is not as Prefect takes it: {' '.join(str(error).split())}"
            raise UsageError(str(wanted.pool_file), fact) from error
        # A server never changes a pool's type, but would accept the other type's template.
        if known.get(name, kind) != kind:
            fact = f"is of type {known[name]} on the server, and {kind} is wanted"
            advice = f"Once nothing runs, `prefect work-pool delete {name}`, and apply again"
            raise UsageError(f"work pool {name}", fact, advice)
    for made in pools:
        if made.name in known:  # operators decide whether it is paused, and its storage
            client.update_work_pool(made.name, WorkPoolUpdate(**made.model_dump(include=_OURS)))
        else:
            client.create_work_pool(made)
        _apply_queues(client, made.name, queues[made.name])


def _apply_queues(client: SyncPrefectClient, pool: str, queues: list[WorkQueueCreate]) -> None:
    there = {each.name: each.id for each in client.read_work_queues(work_pool_name=pool)}
    for queue in queues:
        said = queue.model_dump(include={"description", "concurrency_limit", "priority"})
        if queue.name in there:
            client.update_work_queue(there[queue.name], **said)
        else:
            client.create_work_queue(queue.name, work_pool_name=pool, **said)


def _job_template(kind: str | None, wanted: Wanted) -> dict[str, Any]:
    """Return our own template for pods, and Prefect's with our command for processes.

    Without an explicit command, a worker first prepares a workspace, which takes seconds and writes
    its whole environment, secrets included, to a file. `python` is the worker's, first on its PATH;
    it runs Prefect's engine, which ends with its worker.
    """
    if kind == "kubernetes":
        return wanted.pod_template
    if kind != "process":
        raise LookupError(f"there is a job template for 'process' or 'kubernetes', not {kind!r}")
    template = ProcessWorker.get_default_base_job_template()
    template["variables"]["properties"]["command"]["default"] = _COMMAND
    return template


def deploy(wanted: Wanted) -> None:
    """Deploy by Prefect's own command, so that the file means the same everywhere."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(
        [*command, "--prefect-file", str(wanted.deployment_file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, TIME_ZONE: time_zone()},
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        sys.stderr.write(f"{said}\n")  # the whole output, for the log
        raise MenagerieError(str(wanted.deployment_file), f"prefect deploy failed: {_reason(said)}")


def _reason(said: str) -> str:
    lines = said.splitlines() or ["it said nothing"]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return (errors or lines)[-1]


def _notification_block() -> str | None:
    """Return the id of the block with the secret notification URL; None if none is configured.

    This type of Prefect's blocks takes any Apprise URL, so the server needs no other
    distribution. Raise UsageError if Apprise does not support the URL.
    """
    address = os.environ.get(NOTIFY)
    if not address:
        return None
    if not Apprise().add(address):
        advice = "See `apprise --help`; mailtos://user:password@host?to=b@example.org is one"
        raise UsageError(NOTIFY, "is not a URL that Apprise knows", advice)
    return str(SlackWebhook(url=SecretStr(address)).save(_NOTIFICATIONS, overwrite=True))


def _apply_automation(client: SyncPrefectClient, wanted: dict[str, Any]) -> None:
    """Create or update an automation; leave an unchanged one alone.

    Rewriting an automation would lose the heartbeats that it waits for.
    """
    checked = AutomationCore.model_validate(wanted)
    said = checked.model_dump(mode="json", exclude={"owner_resource"})
    named = {"automations": {"name": {"any_": [wanted["name"]]}}}
    found = client.request("POST", "/automations/filter", json=named).json()
    if not found:
        client.request("POST", "/automations/", json=said)
    elif AutomationCore.model_validate(found[0]) != checked:
        client.request("PUT", "/automations/{id}", path_params={"id": found[0]["id"]}, json=said)


if __name__ == "__main__":
    sys.exit(main(Wanted()))
