"""S3's refusals: which of them say that there is no such object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.stub import Stubber

from zoo.errors import NotInStore, StoreError
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET, KEY = "models", "blobs/ab"
ASKED = {"Bucket": BUCKET, "Prefix": "zoo/blobs/ab", "MaxKeys": 1}


@pytest.fixture
def objects() -> Iterator[S3Objects]:
    """A store whose server only says what a test has it say."""
    made = S3Objects(
        BUCKET,
        "zoo",
        endpoint_url="http://127.0.0.1:9",
        aws_access_key_id="a",
        aws_secret_access_key="b",  # noqa: S106 - of no server
    )
    yield made
    made._client.close()


def listing(*keys: str) -> dict[str, object]:
    """An answer to a listing."""
    return {"Contents": [{"Key": key, "Size": 1} for key in keys]} if keys else {}


@pytest.mark.parametrize("listed", [(), ("zoo/blobs/abc",)])
def test_a_refusal_for_want_of_an_object(objects: S3Objects, listed: tuple[str, ...]) -> None:
    """Without the right to list the whole bucket S3 says 403 for 404: then the listing decides.

    So says S3's documentation of HeadObject and GetObject. A longer key is another object.
    """
    with Stubber(objects._client) as server:
        server.add_client_error("head_object", "403", http_status_code=403)
        server.add_response("list_objects_v2", listing(*listed), ASKED)
        assert objects.size_of(KEY) is None
        server.add_client_error("get_object", "AccessDenied", http_status_code=403)
        server.add_response("list_objects_v2", listing(*listed), ASKED)
        with pytest.raises(NotInStore):
            objects.read_small(KEY, 10)
        server.assert_no_pending_responses()


@pytest.mark.parametrize("listed", [True, False])
def test_a_refusal_is_no_missing_object(objects: S3Objects, listed: bool) -> None:
    """An object that is listed but may not be read; nothing can be listed, as with wrong keys."""
    with Stubber(objects._client) as server:
        server.add_client_error("head_object", "403", http_status_code=403)
        if listed:
            server.add_response("list_objects_v2", listing("zoo/blobs/ab"), ASKED)
        else:
            server.add_client_error("list_objects_v2", "AccessDenied", http_status_code=403)
        with pytest.raises(StoreError, match=r"refused \(403\)") as caught:
            objects.size_of(KEY)
    assert not isinstance(caught.value, NotInStore)


def test_a_refused_write_is_no_missing_object(objects: S3Objects) -> None:
    """Nothing is listed after it: what is written need not be there."""
    with Stubber(objects._client) as server:
        server.add_client_error("put_object", "AccessDenied", http_status_code=403)
        with pytest.raises(StoreError, match=r"refused \(AccessDenied\)") as caught:
            objects.put_small(KEY, b"x")
    assert not isinstance(caught.value, NotInStore)
