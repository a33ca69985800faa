"""The forms of Prefect's UI, made from the flows' parameters: choices, words and bounds."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from flows.collect_garbage import collect_garbage
from flows.confirm_release import confirm_release
from flows.convert_model import convert_model
from flows.convert_zoo import convert_zoo
from flows.verify_releases import verify_releases
from zoo.manifest import load_manifest

FLOWS = (convert_zoo, convert_model, confirm_release, verify_releases, collect_garbage)


def form(flow: Any) -> dict[str, Any]:
    """What the UI makes the form of."""
    schema: dict[str, Any] = flow.parameters.model_dump()
    return schema


def fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All fields of a form by name, those of its groups too."""
    found = dict(schema["properties"])
    for group in schema.get("definitions", {}).values():
        found |= group.get("properties", {})
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
