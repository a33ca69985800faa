"""What the forms of Prefect's UI offer to choose from.

The names stand in the deployment's schema, written when it is deployed: a form with a name that is
not in the manifest is refused by the browser and by the server. From Python and the command line
any text is taken, and `flows.planning.plan` judges it by the manifest that is meant.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from transforms.targets import all_targets
from zoo.errors import MenagerieError
from zoo.manifest import Manifest, load_manifest

__all__ = ["ModelChoice", "TagChoice", "TargetChoice"]


def _manifest() -> Manifest | None:
    try:
        return load_manifest()
    except (
        MenagerieError
    ):  # a flow must stay importable; the command that runs it says what is wrong
        return None


def _one_of(names: list[str], title: str) -> dict[str, Any]:
    """The schema of a text field, or of a select where there is something to choose."""
    chosen = {"enum": names} if names else {}
    return {"type": "string", "title": title, **chosen}


_KNOWN = _manifest()
_MODELS = sorted(_KNOWN.models) if _KNOWN is not None else []
_TAGS = sorted({tag for spec in _KNOWN.models.values() for tag in spec.tags}) if _KNOWN else []

ModelChoice = Annotated[str, WithJsonSchema(_one_of(_MODELS, "Model"))]
TagChoice = Annotated[str, WithJsonSchema(_one_of(_TAGS, "Tag"))]
TargetChoice = Annotated[str, WithJsonSchema(_one_of(list(all_targets()), "Target"))]
