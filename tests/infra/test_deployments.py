"""The deployments agree with the flows that exist, and Prefect understands them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zoneinfo import available_timezones

import pytest
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import AutomationCore
from ruamel.yaml import YAML

from flows import convert, upkeep
from flows.batches import pool_of
from infra.apply import apply_pools, deploy
from infra.wanted import Wanted, time_zone
from transforms.targets import all_targets
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect.client.orchestration import SyncPrefectClient

ROOT = Path(__file__).parents[2]
DEPLOYMENTS: list[dict[str, Any]] = YAML(typ="safe").load(ROOT / "prefect.yaml")["deployments"]
NAMES = [deployment["name"] for deployment in DEPLOYMENTS]


@pytest.fixture(scope="module")
def wanted() -> Wanted:
    """The files of this checkout."""
    return Wanted()


def test_all_that_is_promised_is_deployed() -> None:
    """Each once."""
    promised = {"convert-zoo", "convert-model", "verify-releases", "collect-garbage"}
    assert promised <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_every_flow_is_deployed(wanted: Wanted) -> None:
    """Under the name that the flow has in the code."""
    found = [*vars(convert).values(), *vars(upkeep).values()]
    names = {each.name for each in found if isinstance(each, Flow)}
    assert {each.partition("/")[0] for each in wanted.deployments} == names


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=NAMES)
def test_a_deployment_is_of_a_flow(deployment: dict[str, Any], wanted: Wanted) -> None:
    """Importable on a worker, called as our own reading of the file says.

    A schedule gives all parameters that have no default.
    """
    module, _, name = deployment["entrypoint"].rpartition(".")
    flow = getattr(importlib.import_module(module), name)
    assert isinstance(flow, Flow)
    assert f"{flow.name}/{deployment['name']}" in wanted.deployments
    for schedule in deployment.get("schedules", []):  # there is no form to fill in then
        flow.validate_parameters(deployment.get("parameters", {}) | schedule.get("parameters", {}))


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=NAMES)
def test_a_deployment_has_a_place(deployment: dict[str, Any], wanted: Wanted) -> None:
    """Its pool and its queue exist."""
    place = deployment["work_pool"]
    assert place["work_queue_name"] in wanted.work_pools[place["name"]]["queues"]


def test_targets_have_their_pools(wanted: Wanted) -> None:
    """Where flows send work, there is a pool for it."""
    assert {pool_of(target) for target in all_targets()} <= set(wanted.work_pools)


def test_a_waiting_run_takes_no_place_of_what_it_waits_for(wanted: Wanted) -> None:
    """convert-zoo submits runs and waits: its queue has no limit, nor its pool."""
    [own] = [d for d in DEPLOYMENTS if d["name"] == "convert-zoo"]
    pool = wanted.work_pools[own["work_pool"]["name"]]
    queue = pool["queues"][own["work_pool"]["work_queue_name"]]
    assert "concurrency_limit" not in {*pool, *queue}
    [model] = [d for d in DEPLOYMENTS if d["name"] == "convert-model"]
    assert model["work_pool"]["work_queue_name"] != own["work_pool"]["work_queue_name"]


SCHEDULED = [
    "convert-zoo",
    "verify-releases",
    "confirm-releases",
    "rebuild-release",
    "collect-garbage",
]


@pytest.mark.parametrize("name", SCHEDULED)
def test_schedules_have_a_time_zone(name: str) -> None:
    """A cron line that Prefect takes, in the zone of the setting."""
    [deployment] = [d for d in DEPLOYMENTS if d["name"] == name]
    for schedule in deployment["schedules"]:
        CronSchedule(cron=schedule["cron"], timezone="Europe/Berlin")
        assert schedule["timezone"] == "{{ $MENAGERIE_TIMEZONE }}"


def test_the_time_zone_is_a_setting(monkeypatch: pytest.MonkeyPatch, wanted: Wanted) -> None:
    """Else the machine's; another one is given to the server, and a wrong one is no zone."""
    monkeypatch.delenv("MENAGERIE_TIMEZONE", raising=False)
    assert time_zone() in {*available_timezones(), "Etc/UTC"}
    monkeypatch.setenv("MENAGERIE_TIMEZONE", "Asia/Kathmandu")
    digest = Wanted(ROOT).digest
    assert time_zone() == "Asia/Kathmandu"
    monkeypatch.setenv("MENAGERIE_TIMEZONE", "Asia/Tokyo")
    assert Wanted(ROOT).digest != digest
    for wrong in ("Mars/Olympus", "../../etc/passwd", ""):
        monkeypatch.setenv("MENAGERIE_TIMEZONE", wrong)
        with pytest.raises(UsageError, match=r"MENAGERIE_TIMEZONE: .* is not a time zone"):
            time_zone()


@pytest.fixture
def server(
    prefect_server: None, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SyncPrefectClient]:
    """A real server with our work pools; what is deployed goes with the test."""
    with get_client(sync_client=True) as client:
        monkeypatch.setenv("PREFECT_API_URL", str(client.api_url))
        try:
            apply_pools(client, wanted)
            yield client
        finally:  # other tests' runs would wait for workers of these pools
            for each in client.read_deployments():
                if each.work_pool_name in wanted.work_pools:
                    client.delete_deployment(each.id)
            for pool in wanted.work_pools:
                client.delete_work_pool(pool)


@pytest.mark.sweep
def test_the_server_is_given_the_zone(
    server: SyncPrefectClient, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every schedule of ours is in it, as Prefect reads the file."""
    monkeypatch.setenv("MENAGERIE_TIMEZONE", "Asia/Kathmandu")
    deploy(wanted)
    for name in SCHEDULED:
        known = server.read_deployment_by_name(f"{name}/{name}")
        assert {s.schedule.timezone for s in known.schedules} == {"Asia/Kathmandu"}
        limited = known.concurrency_options
        assert (limited is None) == (name == "convert-zoo")
        assert limited is None or limited.collision_strategy == "CANCEL_NEW"


def test_prefects_own_command_deploys_all_of_it(
    server: SyncPrefectClient, wanted: Wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prefect deploy --all`, at the root of the checkout; hours are UTC's where nothing is set."""
    monkeypatch.delenv("MENAGERIE_TIMEZONE", raising=False)
    command = [Path(sys.executable).with_name("prefect"), "deploy", "--all"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name, each in zip(wanted.deployments, DEPLOYMENTS, strict=True):
        known = server.read_deployment_by_name(name)
        assert known.work_pool_name == each["work_pool"]["name"]
        assert {s.schedule.timezone or "UTC" for s in known.schedules} <= {"UTC"}


def test_automations_are_prefects(wanted: Wanted) -> None:
    """Each is taken whole: no key is ignored, and every event is one that Prefect emits."""
    emitted = {
        f"prefect.flow-run.{state}"
        for state in (
            "heartbeat",
            "AwaitingRetry",
            "Cancelled",
            "Cancelling",
            "Completed",
            "Crashed",
            "Failed",
            "Late",
            "Paused",
            "Pending",
            "Running",
            "Scheduled",
            "Suspended",
            "With failures",  # by flows.convert
        )
    } | {"prefect.work-pool.not-ready"}
    for one in wanted.automations:
        for action in one["actions"]:
            if action.get("block_document_id") == "menagerie-notify":
                action["block_document_id"] = str(uuid4())  # as applying it does
        made = AutomationCore.model_validate(one)
        assert set(one) <= set(AutomationCore.model_fields)
        assert set(one["trigger"]) <= set(type(made.trigger).model_fields)
        assert set(made.trigger.expect) | set(made.trigger.after) <= emitted  # type: ignore[union-attr]


def test_crashed_runs_are_run_again_a_bounded_number_of_times(wanted: Wanted) -> None:
    """Only runs of deployments that began to run, and only while few were tried."""
    [again] = [a for a in wanted.automations if a["name"] == "menagerie-run-again"]
    assert again["trigger"]["match"]["prefect.run-count"] == ["1", "2"]
    assert again["trigger"]["match_related"]["prefect.resource.role"] == "deployment"


def test_the_digest_is_of_what_is_applied(wanted: Wanted, tmp_path: Path) -> None:
    """The same for the same files, another for another cron line or job template."""
    template = "infra/kubernetes/base-job-template.json"
    (tmp_path / "infra" / "kubernetes").mkdir(parents=True)
    for name in ("prefect.yaml", "infra/work_pools.yaml", "infra/automations.yaml", template):
        (tmp_path / name).write_text((ROOT / name).read_text())
    assert Wanted(tmp_path).digest == wanted.digest
    text = (tmp_path / "prefect.yaml").read_text()
    (tmp_path / "prefect.yaml").write_text(text.replace("0 2 * * 6", "0 3 * * 6"))
    changed = Wanted(tmp_path).digest
    assert changed != wanted.digest
    (tmp_path / template).write_text("{}")
    assert Wanted(tmp_path).digest != changed
