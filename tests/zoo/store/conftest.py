"""The stores under test: a folder, and a real S3 server over HTTP and over TLS."""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[2] / "runtime" / "format"))

from bundle_maker import make_bundle
from swift_server import ACCESS_KEY, SECRET_KEY, SwiftServer, running

from zoo.store import Store
from zoo.store.base import LocalObjects
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zoo.store.base import ObjectStore

BUCKET = "zoo"


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwiftServer]:
    """OpenStack Swift with a bucket, for the whole session."""
    for server in running(tmp_path_factory.mktemp("swift")):
        client = boto3.client(
            "s3",
            endpoint_url=server.http,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield server


@dataclass
class Place:
    """Opens the same store as often as wanted; a test has one of its own."""

    root: Path | None
    given: dict[str, Any] = field(default_factory=dict)  # to boto3's client
    prefix: str = ""
    clients: dict[str, Any] = field(default_factory=dict)

    def objects(self) -> ObjectStore:
        """The primitive layer; parts are as small as S3 allows."""
        if self.root is not None:
            return LocalObjects(self.root)
        objects = S3Objects(BUCKET, self.prefix, **self.given)
        objects.part_bytes = 5 * 2**20
        endpoint = self.given["endpoint_url"]
        if endpoint in self.clients:  # making one takes a quarter of a second
            objects.__dict__["_client"] = self.clients[endpoint]
        self.clients[endpoint] = objects._client
        return objects

    def store(self) -> Store:
        """The store over it."""
        return Store(self.objects())


def given(swift: SwiftServer, endpoint: str) -> dict[str, Any]:
    """What boto3's client is given for the server."""
    return {
        "endpoint_url": endpoint,
        "aws_access_key_id": ACCESS_KEY,
        "aws_secret_access_key": SECRET_KEY,
        "verify": str(swift.ca_bundle) if endpoint.startswith("https") else None,
    }


@pytest.fixture(scope="session")
def clients() -> Iterator[dict[str, Any]]:
    """boto3's clients by their endpoint, shared by all tests and closed at the end."""
    made: dict[str, Any] = {}
    yield made
    for client in made.values():
        client.close()


@pytest.fixture
def s3(swift: SwiftServer, clients: dict[str, Any]) -> Place:
    """A store in the bucket, over HTTP."""
    return Place(None, given(swift, swift.http), f"tests/{uuid.uuid4().hex}", clients)


@pytest.fixture(params=["local", "s3-http", pytest.param("s3-tls", marks=pytest.mark.sweep)])
def place(request: pytest.FixtureRequest, tmp_path: Path, clients: dict[str, Any]) -> Place:
    """Each kind of store in turn."""
    if request.param == "local":
        return Place(tmp_path / "store")
    swift: SwiftServer = request.getfixturevalue("swift")
    endpoint = swift.http if request.param == "s3-http" else swift.tls
    return Place(None, given(swift, endpoint), f"tests/{uuid.uuid4().hex}", clients)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A validated bundle of a few bytes."""
    return make_bundle(tmp_path / "bundle")
