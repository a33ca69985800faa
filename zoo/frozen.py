"""The base of all that is kept as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Frozen"]


class Frozen(BaseModel):
    """Cannot be changed, and refuses fields that it does not know.

    JSON has no infinity: as a string it survives the round trip and every other reader.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_inf_nan="strings", defer_build=True
    )
