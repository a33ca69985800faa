"""What runs are called and tagged with, however they began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow

from flows.upkeep import collect_garbage, confirm_releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prefect import Flow
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


@pytest.fixture
def client(prefect_server: None) -> Iterator[SyncPrefectClient]:
    """Of a server that forgets the deployments of this file."""
    with get_client(sync_client=True) as made:
        yield made
        for deployment in made.read_deployments():
            if deployment.name == "named":
                made.delete_deployment(deployment.id)


def run(
    client: SyncPrefectClient, flow: Flow[..., Any], parameters: dict[str, Any], **asked: Any
) -> FlowRun:
    """A run of a deployment, run here as a worker does it, as the server knows it afterwards."""
    deployment = client.create_deployment(flow_id=client.create_flow(flow), name="named")
    made = client.create_flow_run_from_deployment(deployment, parameters=parameters, **asked)
    run_flow(flow, flow_run=made, parameters=made.parameters, return_type="state")
    return client.read_flow_run(made.id)


@pytest.mark.parametrize("name", [None, "Ergonomic-Flea", "before the holidays"])
def test_a_run_says_what_it_does(
    client: SyncPrefectClient, tmp_path: Path, name: str | None
) -> None:
    """Whatever Prefect's server, its form or a person called it when it was submitted."""
    parameters = {"store": str(tmp_path / "store"), "dry_run": True}
    assert run(client, collect_garbage, parameters, name=name).name == "list garbage"


def test_a_run_is_tagged_with_model_target_and_trigger(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """A person's own tags stay."""
    parameters = {"models": ["digits_cnn"], "targets": ["metal"], "store": str(tmp_path / "store")}
    found = run(client, confirm_releases, parameters, tags=["mine"])
    assert found.tags == ["digits_cnn", "metal", "mine", "on demand"]
    assert found.name == "confirm digits_cnn"
