"""How something is that was looked at: for `zoo doctor` and `zoo status`."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

__all__ = ["Check", "Health"]


class Health(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(BaseModel):
    """One thing that was looked at; `advice` says what to do unless all is well."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    health: Health
    detail: str
    advice: str = ""
