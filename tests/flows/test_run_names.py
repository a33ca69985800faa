"""What runs are called and tagged with, however they began."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.utilities.names import generate_slug

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


def test_a_run_says_what_it_does(client: SyncPrefectClient, tmp_path: Path) -> None:
    """In place of the two random words by which Prefect's server and its form call it."""
    parameters = {"store": str(tmp_path / "store"), "dry_run": True}
    for name in (None, generate_slug(2), generate_slug(2), "Ergonomic-Flea"):
        assert run(client, collect_garbage, parameters, name=name).name == "list garbage"


@pytest.mark.parametrize("name", ["before the holidays", "nightly-check", "ant"])
def test_a_name_that_a_person_typed_is_kept(
    client: SyncPrefectClient, tmp_path: Path, name: str
) -> None:
    """Also one of two words."""
    parameters = {"store": str(tmp_path / "store")}
    assert run(client, collect_garbage, parameters, name=name).name == name


def test_a_run_is_tagged_with_model_target_and_trigger(
    client: SyncPrefectClient, tmp_path: Path
) -> None:
    """A person's own tags stay."""
    parameters = {"models": ["digits_cnn"], "targets": ["metal"], "store": str(tmp_path / "store")}
    found = run(client, confirm_releases, parameters, tags=["mine"])
    assert found.tags == ["digits_cnn", "metal", "mine", "on demand"]
    assert found.name == "confirm digits_cnn"
