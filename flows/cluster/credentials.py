"""The secrets of the local cluster: made once, kept in one file that only its owner may read."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_serializer

from flows.cluster.private_file import write_private
from flows.cluster.state import cluster_folder
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ACCESS_KEY", "Credentials", "credentials_path"]

ACCESS_KEY = "menagerie:owner"  # a name, no secret; Swift's form is account:user
_BYTES = 32
_OTHERS = 0o077


class Credentials(BaseModel):
    """Handed to processes in their environment, never as arguments, which everybody can list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api_auth: SecretStr  # user:password of Prefect's API and UI
    s3_secret: SecretStr
    database_url: SecretStr | None = None  # of PostgreSQL, with its password

    @field_serializer("api_auth", "s3_secret", "database_url", when_used="json")
    def _revealed(self, secret: SecretStr | None) -> str | None:
        return None if secret is None else secret.get_secret_value()

    @classmethod
    def make(cls, database_url: str | None = None) -> Credentials:
        """Fresh ones."""
        return cls(
            api_auth=SecretStr(f"zoo:{secrets.token_urlsafe(_BYTES)}"),
            s3_secret=SecretStr(secrets.token_urlsafe(_BYTES)),
            database_url=None if database_url is None else SecretStr(database_url),
        )

    @classmethod
    def load(cls) -> Credentials | None:
        """Read the file; None if there is none yet.

        Raises:
            MenagerieError: if others may read it, or it is not what was written.
        """
        path = credentials_path()
        try:
            if path.stat().st_mode & _OTHERS:
                advice = f"Run `chmod 600 {path}`, and rotate the keys if others were on this host"
                raise MenagerieError(str(path), "others may read the secrets in it", advice)
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            advice = "Restore it from a backup, or remove it to have new secrets made"
            # Its cause would show the file's content.
            raise MenagerieError(str(path), "is not readable as written", advice) from None

    def save(self) -> None:
        """Write the file."""
        write_private(credentials_path(), self.model_dump_json(indent=2) + "\n")


def credentials_path() -> Path:
    """Where they lie."""
    return cluster_folder() / "secrets.json"
