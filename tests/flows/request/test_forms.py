"""The forms of Prefect's UI, made from the flows' parameters: choices, words and bounds."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError

from flows.convert import convert_batch, convert_model, convert_zoo
from flows.parameters import ConversionOptions
from flows.upkeep import collect_garbage, confirm_releases, verify_releases
from zoo.manifest import load_manifest

FLOWS = (convert_zoo, convert_model, confirm_releases, verify_releases, collect_garbage)


def form(flow: Any) -> dict[str, Any]:
    """What the UI makes the form of."""
    schema: dict[str, Any] = flow.parameters.model_dump()
    return schema


def fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All fields of a form by name, those of its groups too."""
    found = dict(schema["properties"])
    for group in schema.get("definitions", {}).values():
        for tab in group.get("anyOf", [group]):
            found |= tab.get("properties", {})
    return found


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: str(flow.name))
def test_every_field_is_explained(flow: Any) -> None:
    """A title and a description each, and nothing that the form cannot show."""
    assert flow.description
    for name, field in fields(form(flow)).items():
        assert field.get("title"), name
        assert field.get("description") or "$ref" in field, name
        assert field.get("type") != "object", name
        assert "oneOf" not in field, name


def test_models_and_targets_are_chosen_from_lists() -> None:
    """The names of the manifest in a select, the targets as chips."""
    names = sorted(load_manifest().models)
    assert form(convert_model)["properties"]["model"]["enum"] == names
    zoo = form(convert_zoo)
    assert zoo["properties"]["models"]["items"]["enum"] == names
    assert "default" in zoo["properties"]["selected_tags"]["items"]["enum"]
    assert zoo["properties"]["targets"]["items"]["enum"] == ["cpu", "metal"]
    assert form(convert_model)["properties"]["target"]["enum"] == ["cpu", "metal"]


def test_common_options_come_first() -> None:
    """Weights, another try and the store; the rest is folded behind another tab.

    Nothing is of a type None, and the manifest no field.
    """
    for flow in (convert_zoo, convert_model, convert_batch):
        usual, every = form(flow)["definitions"]["ConversionOptions"]["anyOf"]
        assert (usual["title"], every["title"]) == ("Usual", "All")
        assert list(usual["properties"]) == ["random_weights", "force", "store"]
        assert list(every["properties"])[:3] == list(usual["properties"])
        wanted = set(ConversionOptions.model_fields) - {"manifest"}
        assert set(every["properties"]) == wanted
        assert '"null"' not in json.dumps(form(flow))
        assert form(flow)["properties"]["options"]["default"] == {}, "it opens folded"
    submitted = {"models": ["my_net"], "options": {"manifest": f"sha256:{'a' * 64}"}}
    jsonschema.validate(submitted, form(convert_batch))
    for options in ({"random_weights": 0}, {"threads": 2, "memory_gib": 4, "force": True}, {}):
        jsonschema.validate({"model": "resnet18", "options": options}, form(convert_model))
    for refused in ({"threads": 0}, {"thread": 1}, {"random_weights": -1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"model": "resnet18", "options": refused}, form(convert_model))


@pytest.mark.usefixtures("prefect_server")
def test_the_server_refuses_an_unknown_model() -> None:
    """With 409 and the name, before it reaches any worker."""
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            client.create_flow(convert_model),
            "choices",
            parameter_openapi_schema=form(convert_model),
            enforce_parameter_schema=True,
        )
        with pytest.raises(PrefectHTTPStatusError) as caught:
            client.create_flow_run_from_deployment(deployment, parameters={"model": "my_net"})
        assert caught.value.response.status_code == 409
        assert "my_net" in caught.value.response.text
        client.create_flow_run_from_deployment(deployment, parameters={"model": "resnet18"})
        client.delete_deployment(deployment)


def test_only_the_model_must_be_given() -> None:
    """Everything else has a default."""
    assert form(convert_model)["required"] == ["model"]
    assert form(convert_zoo)["required"] == []
    jsonschema.validate({"model": "resnet18"}, form(convert_model))


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "no_such_model"},
        {"model": "resnet18", "target": "toaster"},
        {"model": "resnet18", "options": {"threads": 0}},
        {"model": "resnet18", "options": {"stage_minutes": 100_000}},
        {"model": "resnet18", "options": {"random_weights": -1}},
        {"model": "resnet18", "options": {"colour": "red"}},
    ],
)
def test_a_bad_value_is_stopped_in_the_browser(bad: dict[str, Any]) -> None:
    """The schema, by which browser and server judge, refuses it."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(bad, form(convert_model))
