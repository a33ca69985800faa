"""How to talk to an S3 server: a frozen record, read from MENAGERIE_S3_* variables."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from menagerie.errors import UsageError
from menagerie.numerics import TextEnum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIX = "MENAGERIE_S3_"
_MIB = 2**20
_ENDPOINT = re.compile(r"https?://[^/@]+/?")


class Addressing(TextEnum):
    """Where the bucket's name stands in a URL."""

    AUTO = "auto"  # in the path when an endpoint is named, else as AWS wants it
    PATH = "path"
    VIRTUAL = "virtual"


class Checksums(TextEnum):
    """Whether requests carry a CRC32; some servers refuse it, above all the trailer over TLS."""

    SUPPORTED = "when_supported"
    REQUIRED = "when_required"


class Secret:
    """A text that no log, traceback or message shows by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """The text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('**********')"

    __str__ = __repr__


@dataclass(frozen=True, kw_only=True)
class S3Options:
    """Options of an S3 store; every field is the variable MENAGERIE_S3_<FIELD>.

    Without `access_key` and `secret_key`, credentials come from where boto3 looks for them.

    Attributes:
        endpoint: e.g. https://s3.example.org:8080; None: AWS.
        region: the bucket's.
        access_key: of the account.
        secret_key: of the account.
        session_token: of temporary credentials.
        ca_bundle: PEM file of the authority that signed the server's certificate.
        addressing: where the bucket's name stands.
        checksums: whether requests carry one.
        part_bytes: larger files travel in parts of this size, 5 MiB to 5 GiB.
        concurrency: parts in flight at once, 1 to 32.
        attempts: tries of a request, backing off, 1 to 20.
        connect_timeout: in seconds, at most 300.
        read_timeout: in seconds, at most 3600.

    Raises:
        UsageError: a value is outside its range; names the variable.
    """

    endpoint: str | None = None
    region: str = "us-east-1"
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    ca_bundle: Path | None = None
    addressing: Addressing = Addressing.AUTO
    checksums: Checksums = Checksums.SUPPORTED
    part_bytes: int = 16 * _MIB
    concurrency: int = 4
    attempts: int = 4
    connect_timeout: float = 5.0
    read_timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.endpoint is not None and not _ENDPOINT.fullmatch(self.endpoint):
            _refuse("endpoint", "is not of the form https://host:port")
        if self.ca_bundle is not None and not self.ca_bundle.is_file():
            _refuse("ca_bundle", f"{self.ca_bundle} is no file")
        for field, (least, most) in _RANGES.items():
            if not least <= getattr(self, field) <= most:
                _refuse(field, f"{getattr(self, field)} is not from {least:g} to {most:g}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> S3Options:
        """Reads MENAGERIE_S3_* variables; empty ones count as absent.

        Raises:
            UsageError: a variable is unknown or its value is not allowed.
        """
        environment = os.environ if environment is None else environment
        given = {
            name.removeprefix(_PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(_PREFIX) and value
        }
        known = [field.name for field in fields(cls)]
        for name in sorted(given.keys() - known):
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"Did you mean {_variable(near[0])}?" if near else "Unset it"
            raise UsageError(_variable(name), "there is no such option", advice)
        return cls(**{name: _read(name, value) for name, value in given.items()})


_RANGES: Mapping[str, tuple[float, float]] = {
    "part_bytes": (5 * _MIB, 5 * 1024 * _MIB),  # S3 takes no parts below 5 MiB
    "concurrency": (1, 32),
    "attempts": (1, 20),
    "connect_timeout": (0.001, 300),
    "read_timeout": (0.001, 3600),
}
_TYPES: Mapping[str, Callable[[str], Any]] = {
    "access_key": Secret,
    "secret_key": Secret,
    "session_token": Secret,
    "ca_bundle": Path,
    "addressing": Addressing,
    "checksums": Checksums,
    "part_bytes": int,
    "concurrency": int,
    "attempts": int,
    "connect_timeout": float,
    "read_timeout": float,
}


def _read(field: str, text: str) -> Any:
    try:
        return _TYPES.get(field, str)(text)
    except ValueError:
        kind = _TYPES[field]
        if isinstance(kind, type) and issubclass(kind, TextEnum):
            _refuse(field, f"{text!r} is not {' or '.join(repr(str(each)) for each in kind)}")
        _refuse(field, f"{text!r} is not a {'whole ' if kind is int else ''}number")


def _refuse(field: str, fact: str) -> NoReturn:
    raise UsageError(_variable(field), fact, "Correct or unset it")


def _variable(field: str) -> str:
    return _PREFIX + field.upper()
