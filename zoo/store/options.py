"""How to talk to an S3 server: a frozen record, read from MENAGERIE_S3_* variables."""

from __future__ import annotations

import difflib
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr, ValidationError

from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Addressing", "Checksums", "S3Options"]

_PREFIX = "MENAGERIE_S3_"
_MIB = 2**20


class Addressing(StrEnum):
    """Where the bucket's name stands in a URL."""

    AUTO = "auto"  # in the path when an endpoint is named, else as AWS wants it
    PATH = "path"
    VIRTUAL = "virtual"


class Checksums(StrEnum):
    """Whether requests carry a CRC32; some servers refuse it, above all the trailer over TLS."""

    SUPPORTED = "when_supported"
    REQUIRED = "when_required"


class S3Options(BaseModel):
    """Options of an S3 store; every field is the variable MENAGERIE_S3_<FIELD>.

    Without `access_key` and `secret_key`, credentials come from where boto3 looks for them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+/?$")] | None = Field(
        default=None, description="e.g. https://s3.example.org:8080; left out: AWS"
    )
    region: str = "us-east-1"
    access_key: SecretStr | None = None
    secret_key: SecretStr | None = None
    session_token: SecretStr | None = None
    ca_bundle: FilePath | None = Field(
        default=None, description="PEM file of the authority that signed the server's certificate"
    )
    addressing: Addressing = Addressing.AUTO
    checksums: Checksums = Checksums.SUPPORTED
    part_bytes: int = Field(
        default=16 * _MIB,
        ge=5 * _MIB,
        le=5 * 1024 * _MIB,
        description="larger files travel in parts of this size; S3 takes none below 5 MiB",
    )
    concurrency: int = Field(default=4, ge=1, le=32, description="parts in flight at once")
    attempts: int = Field(default=4, ge=1, le=20, description="tries of a request, backing off")
    connect_timeout: float = Field(default=5.0, gt=0, le=300, description="seconds")
    read_timeout: float = Field(default=60.0, gt=0, le=3600, description="seconds")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Reads MENAGERIE_S3_* variables; empty ones count as absent.

        Raises:
            UsageError: a variable is unknown or its value is not allowed.
        """
        environment = os.environ if environment is None else environment
        fields = {
            name.removeprefix(_PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(_PREFIX) and value
        }
        for field in sorted(fields.keys() - cls.model_fields.keys()):
            near = difflib.get_close_matches(field, cls.model_fields, n=1)
            advice = f"Did you mean {_variable(near[0])}?" if near else "Unset it"
            raise UsageError(_variable(field), "there is no such option", advice)
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            raise UsageError(
                _variable(str(fault["loc"][0])), fault["msg"].lower(), "Correct or unset it"
            ) from None


def _variable(field: str) -> str:
    return _PREFIX + field.upper()
