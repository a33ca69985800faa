"""Base models and field types of JSON documents: names, digests, references and axes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from menagerie.format.bundle_manifest import NAME, check_name, check_sha256


class Frozen(BaseModel):
    """A model that is immutable and refuses unknown fields.

    JSON has no infinity, so it is written as a string, which every reader preserves.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True
    )


_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def _reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise ValueError("a builder is written `module:callable`, e.g. `my_models.unet:build`")
    return text


def _axis(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str) and re.fullmatch(NAME, value):
        return value
    raise ValueError("an axis is a size of at least 1 or the name of a dimension")


Name = Annotated[str, AfterValidator(check_name), Field(json_schema_extra={"pattern": f"^{NAME}$"})]
Sha256 = Annotated[str, AfterValidator(check_sha256)]
Reference = Annotated[str, AfterValidator(_reference)]
Axis = Annotated[
    int | str,
    PlainValidator(_axis, json_schema_input_type=Annotated[int, Field(ge=1)] | Name),
    Field(description="a size, or the name of a dimension under `dimensions`"),
]


class SpecModel(Frozen):
    """A frozen model that also refuses numbers that are not finite."""

    model_config = ConfigDict(allow_inf_nan=False)
