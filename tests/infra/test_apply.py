"""The work pools that a server is given: each with the job template of its type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.objects import WorkPoolStorageConfiguration

from infra.apply import apply_pools, deploy, main
from infra.wanted import Wanted
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect.client.orchestration import SyncPrefectClient

INFRA = Path(__file__).parents[2] / "infra"
NAMES = {"on-hosts", "in-pods"}
PODS = json.loads((INFRA / "kubernetes" / "base-job-template.json").read_text())
POOLS = """
work_pools:
  on-hosts: {{type: process, description: d, queues: {{q: {{priority: 1}}}}}}
  in-pods: {{type: {type}, description: d, queues: {{q: {{priority: 1, concurrency_limit: 3}}}}}}
"""


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """A server that forgets this file's pools after each test."""
    with get_client(sync_client=True) as made:
        yield made
        for name in NAMES & {pool.name for pool in made.read_work_pools()}:
            made.delete_work_pool(name)


def wanted(folder: Path, kind: str) -> Wanted:
    """Files of which the second pool is of type `kind`."""
    infra = folder / "infra"
    (infra / "kubernetes").mkdir(parents=True, exist_ok=True)
    (infra / "kubernetes" / "base-job-template.json").write_text(json.dumps(PODS))
    (infra / "work_pools.yaml").write_text(POOLS.format(type=kind))
    return Wanted(folder)


def template(client: SyncPrefectClient, pool: str) -> dict[str, Any]:
    """What the server gives workers of this pool."""
    return client.read_work_pool(pool).base_job_template


def test_each_pool_gets_the_template_of_its_type(client: SyncPrefectClient, tmp_path: Path) -> None:
    """Pods keep theirs however often it is applied; processes start Prefect's engine."""
    for _ in range(2):
        apply_pools(client, wanted(tmp_path, "kubernetes"))
        assert template(client, "in-pods") == PODS
        assert client.read_work_pool("in-pods").type == "kubernetes"
        properties = template(client, "on-hosts")["variables"]["properties"]
        assert properties["command"]["default"] == "python -m flows.prefect_api run"
        queues = {queue.name: queue for queue in client.read_work_queues(work_pool_name="in-pods")}
        assert queues["q"].concurrency_limit == 3


def test_a_paused_pool_stays_paused(client: SyncPrefectClient, tmp_path: Path) -> None:
    """The person who paused it, before an upgrade say, resumes it; all else of ours is set anew."""
    apply_pools(client, wanted(tmp_path, "process"))
    steps = WorkPoolStorageConfiguration(bundle_upload_step={"prefect_aws": {"bucket": "b"}})
    client.update_work_pool(
        "on-hosts",
        WorkPoolUpdate(is_paused=True, description="another", storage_configuration=steps),
    )
    apply_pools(client, wanted(tmp_path, "process"))
    pool = client.read_work_pool("on-hosts")
    assert (pool.is_paused, pool.description) == (True, "d")
    assert pool.storage_configuration == steps


def test_a_pool_of_another_type_is_refused(client: SyncPrefectClient, tmp_path: Path) -> None:
    """The server would keep the old type and take the new template: nothing is changed at all."""
    apply_pools(client, wanted(tmp_path, "process"))
    before = {name: template(client, name) for name in NAMES}
    with pytest.raises(UsageError, match="is of type process on the server") as caught:
        apply_pools(client, wanted(tmp_path, "kubernetes"))
    assert "prefect work-pool delete in-pods" in str(caught.value)
    assert before == {name: template(client, name) for name in NAMES}


def test_a_template_that_is_missing(client: SyncPrefectClient, tmp_path: Path) -> None:
    """It is named before the server is changed."""
    files = wanted(tmp_path, "kubernetes")
    (tmp_path / "infra" / "kubernetes" / "base-job-template.json").unlink()
    with pytest.raises(UsageError, match=r"base-job-template\.json: cannot be read"):
        apply_pools(client, files)
    assert not NAMES & {pool.name for pool in client.read_work_pools()}


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("{type: process, descripton: d}", "descripton"),
        ("{type: process, queues: {q: {priority: 0}}}", "priority"),
        ("{type: docker}", "'process' or 'kubernetes'"),
        ("[", "cannot be read"),
    ],
)
def test_faulty_work_pools(client: SyncPrefectClient, tmp_path: Path, pool: str, said: str) -> None:
    """File and fault in one line; the server is given no pool."""
    files = wanted(tmp_path, "process")
    files.pool_file.write_text(f"work_pools: {{on-hosts: {{type: process}}, in-pods: {pool}}}")
    with pytest.raises(UsageError, match=said) as caught:
        apply_pools(client, files)
    assert str(caught.value).startswith(str(files.pool_file))
    assert len(str(caught.value).splitlines()) == 1
    assert not NAMES & {each.name for each in client.read_work_pools()}


def test_the_address_to_notify_must_be_one_that_apprise_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before a server gets any request."""
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("MENAGERIE_NOTIFY", "a-pigeon")
    assert main(Wanted()) == UsageError.exit_code
    assert "MENAGERIE_NOTIFY: is not a URL that Apprise knows" in capsys.readouterr().err


def test_a_deployment_that_cannot_be_read_says_why(
    client: SyncPrefectClient,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the flow's module in a line, and all that Prefect said in the log."""
    # asks the tests' server, where the command would else start one of its own
    monkeypatch.setenv("PREFECT_API_URL", str(client.api_url))
    (tmp_path / "prefect.yaml").write_text(
        "deployments: [{name: toy, entrypoint: no_such_module.toy, work_pool: {name: on-hosts}}]"
    )
    with pytest.raises(MenagerieError, match="No module named 'no_such_module'"):
        deploy(Wanted(tmp_path))
    assert "Traceback" in capfd.readouterr().err
