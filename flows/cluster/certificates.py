"""TLS on loopback: an authority of our own and the certificate it signs for the S3 server.

The authority's key is never written, so nobody can ever sign another certificate in its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.cluster.private_file import write_private
from zoo.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Certificate", "ensure_certificate"]


@dataclass(frozen=True)
class Certificate:
    """PEM files: what clients trust, what the server shows, and its key."""

    authority: Path
    chain: Path
    key: Path


def ensure_certificate(folder: Path) -> Certificate:
    """The certificate for `localhost` and 127.0.0.1 in `folder`, made where there is none.

    Raises:
        UsageError: if the library for it is not installed.
    """
    files = Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    if all(path.exists() for path in (files.authority, files.chain, files.key)):
        return files
    try:
        import trustme
    except ImportError:
        raise UsageError(
            "trustme", "is not installed", "Run `pip install 'menagerie[cluster]'`"
        ) from None
    authority = trustme.CA(organization_name="Menagerie's local cluster")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    write_private(files.key, issued.private_key_pem.bytes().decode())
    write_private(files.chain, "".join(blob.bytes().decode() for blob in issued.cert_chain_pems))
    write_private(files.authority, authority.cert_pem.bytes().decode())  # last: all is there
    return files
