"""A local S3 server keeps the policies that a team gives to its store: each key does its part."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import s3_rights
import swift_server
from botocore.config import Config
from botocore.exceptions import ClientError
from bundle_maker import make_bundle
from s3_rights import Key, Rights, policy

from zoo.errors import StoreError
from zoo.signing.promotion import Promoter
from zoo.store import Store
from zoo.store.garbage_collection import KeepRule, sweep
from zoo.store.inspection import probe
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zoo.signing.keyring import Keyring

BUCKET = "museum"
PART = 5 * 2**20
OWNER, PROMOTER = Key("zoo:owner", "o"), Key("zoo:promoter", "p", "operator-policy")
WORKER, READER = Key("zoo:worker", "w", "worker-policy"), Key("zoo:reader", "r", "reader-policy")
KEYS = (OWNER, PROMOTER, WORKER, READER)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[swift_server.SwiftServer]:
    """A server with a key of each kind, and the bucket."""
    folder = tmp_path_factory.mktemp("swift")
    for started in swift_server.running(folder, Rights(BUCKET, KEYS)):
        client(started, OWNER).create_bucket(Bucket=BUCKET)
        yield started


def client(server: swift_server.SwiftServer, key: Key, endpoint: str = "") -> Any:
    """Amazon's client with that key."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint or server.http,
        region_name="us-east-1",
        aws_access_key_id=key.name,
        aws_secret_access_key=key.secret,
        verify=str(server.ca_bundle),
        config=Config(retries={"total_max_attempts": 1}),
    )


def store_of(server: swift_server.SwiftServer, key: Key) -> Store:
    """The store as the holder of that key opens it."""
    objects = S3Objects(
        BUCKET,
        "zoo",
        endpoint_url=server.http,
        aws_access_key_id=key.name,
        aws_secret_access_key=key.secret,
        config=Config(retries={"total_max_attempts": 1}),
    )
    objects.part_bytes = PART
    return Store(objects)


def code(request: Any, **arguments: Any) -> str:
    """How a request is answered: an error's code, or "done"."""
    try:
        request(Bucket=BUCKET, **arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


def test_each_key_does_its_part_and_no_other(
    server: swift_server.SwiftServer, keyring: Keyring, tmp_path: Path
) -> None:
    """A worker proposes, a promoter signs, a reader pulls; each is refused the next one's work."""
    worker, promoter, reader = (store_of(server, key) for key in (WORKER, PROMOTER, READER))
    folder = make_bundle(tmp_path / "made", {"programs/main/model.so": os.urandom(PART + 1)})
    with pytest.raises(StoreError, match=r"refused \((AccessDenied|403)\)"):
        reader.propose(folder)
    candidate = worker.propose(folder)
    with pytest.raises(StoreError, match=r"refused \((AccessDenied|403)\)"):
        Promoter(worker, keyring).promote(candidate)
    assert worker.releases() == []
    release = Promoter(promoter, keyring).promote(candidate)
    assert reader.find("tiny", "cpu").build_key == release.build_key
    pulled = reader.pull(reader.find("tiny", "cpu"), tmp_path / "out")
    assert (pulled / "manifest.json").read_bytes() == release.document


def test_the_doctor_passes_with_a_workers_key(server: swift_server.SwiftServer) -> None:
    """All that it tries on scratch keys is among a worker's rights."""
    findings = probe(store_of(server, WORKER).objects)
    assert [(each.operation, each.detail) for each in findings if each.detail] == []


@pytest.mark.parametrize("key", [WORKER, READER])
@pytest.mark.parametrize(
    "folder", ["releases", "signatures", "ledgers", "provenance", "metadata", "catalogue"]
)
def test_what_is_promoted_only_a_promoter_writes(
    server: swift_server.SwiftServer, key: Key, folder: str
) -> None:
    """Other keys do not, by one request, in parts or by a copy; the promoted file stays."""
    place = f"zoo/{folder}/tiny.json"
    client(server, PROMOTER).put_object(Bucket=BUCKET, Key=place, Body=b"promoted")
    client(server, OWNER).put_object(Bucket=BUCKET, Key="zoo/blobs/planted", Body=b"planted")
    theirs = client(server, key)
    source = {"Bucket": BUCKET, "Key": "zoo/blobs/planted"}
    assert code(theirs.put_object, Key=place, Body=b"planted") == "AccessDenied"
    assert code(theirs.create_multipart_upload, Key=place) == "AccessDenied"
    assert code(theirs.copy_object, Key=place, CopySource=source) == "AccessDenied"
    assert theirs.get_object(Bucket=BUCKET, Key=place)["Body"].read() == b"promoted"


def test_a_reader_changes_nothing(server: swift_server.SwiftServer) -> None:
    """Nor does it see what others have begun to upload."""
    client(server, OWNER).put_object(Bucket=BUCKET, Key="zoo/blobs/kept", Body=b"kept")
    reader = client(server, READER)
    assert code(reader.list_objects_v2, Prefix="zoo/blobs/") == "done"
    assert code(reader.get_object, Key="zoo/blobs/kept") == "done"
    assert code(reader.put_object, Key="zoo/blobs/new", Body=b"") == "AccessDenied"
    assert code(reader.delete_object, Key="zoo/blobs/kept") == "AccessDenied"
    deleted = {"Objects": [{"Key": "zoo/blobs/kept"}]}
    assert code(reader.delete_objects, Delete=deleted) == "AccessDenied"
    assert code(reader.list_multipart_uploads) == "AccessDenied"
    assert code(reader.get_bucket_acl) == "AccessDenied"
    assert code(reader.delete_bucket) == "AccessDenied"
    assert code(client(server, OWNER).head_object, Key="zoo/blobs/kept") == "done"


@pytest.mark.parametrize("key", [PROMOTER, WORKER, READER])
def test_what_is_outside_the_prefix_is_out_of_reach(
    server: swift_server.SwiftServer, key: Key
) -> None:
    """Other folders of the bucket, the bucket as a whole, other buckets and their list."""
    owner, theirs = client(server, OWNER), client(server, key)
    owner.put_object(Bucket=BUCKET, Key="payroll/2026", Body=b"secret")
    assert code(theirs.get_object, Key="payroll/2026") == "AccessDenied"
    assert code(theirs.head_object, Key="payroll/2026") == "403"
    assert code(theirs.put_object, Key="payroll/new", Body=b"") == "AccessDenied"
    assert code(theirs.list_objects_v2) == "AccessDenied"
    assert code(theirs.list_objects_v2, Prefix="") == "AccessDenied"
    assert code(theirs.list_objects_v2, Prefix="zoo") == "AccessDenied"
    for request in (theirs.list_buckets, lambda: theirs.create_bucket(Bucket="other")):
        with pytest.raises(ClientError, match="AccessDenied"):
            request()


def test_a_key_that_names_another_gets_nothing(server: swift_server.SwiftServer) -> None:
    """Rights are judged by the very name that the signature is checked for."""
    posing = client(server, Key(OWNER.name, READER.secret))
    assert code(posing.put_object, Key="zoo/releases/x", Body=b"") == "SignatureDoesNotMatch"
    client(server, PROMOTER).put_object(Bucket=BUCKET, Key="zoo/releases/y", Body=b"y")
    link = client(server, READER).generate_presigned_url(
        "put_object", Params={"Bucket": BUCKET, "Key": "zoo/releases/y"}
    )
    for header in ({}, {"Authorization": f"AWS {OWNER.name}:guess"}):
        wanted = urllib.request.Request(link, data=b"z", method="PUT", headers=header)  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wanted)  # noqa: S310
        refused.value.close()
        assert 400 <= refused.value.code < 404
    read = client(server, READER).get_object(Bucket=BUCKET, Key="zoo/releases/y")
    assert read["Body"].read() == b"y"


def test_only_encrypted_requests_where_the_bucket_says_so(tmp_path: Path) -> None:
    """As `bucket-policy.json`: plain HTTP is refused to every key, TLS is not."""
    limited = Rights(BUCKET, KEYS, tls_only=True)
    for server in swift_server.running(tmp_path / "swift", limited):
        client(server, OWNER, server.tls).create_bucket(Bucket=BUCKET)
        for key in (OWNER, PROMOTER, WORKER, READER):
            plain, encrypted = client(server, key), client(server, key, server.tls)
            assert code(plain.list_objects_v2, Prefix="zoo/") == "AccessDenied"
            assert code(encrypted.list_objects_v2, Prefix="zoo/") == "done"
            assert code(plain.put_object, Key="zoo/blobs/x", Body=b"x") == "AccessDenied"
        assert code(client(server, OWNER, server.tls).head_object, Key="zoo/blobs/x") == "404"


def test_forgotten_uploads_end_without_a_lifecycle(server: swift_server.SwiftServer) -> None:
    """What `lifecycle.json` asks of a store, `zoo gc` does in one that has none; a worker may."""
    worker, place = client(server, WORKER), f"zoo/blobs/ab/{'ab' * 32}"
    upload = worker.create_multipart_upload(Bucket=BUCKET, Key=place)["UploadId"]
    part = {"Key": place, "UploadId": upload, "PartNumber": 1, "Body": b"part"}
    assert code(worker.upload_part, **part) == "done"
    assert (
        sweep(store_of(server, WORKER).objects, KeepRule(), dry_run=False).uploads == 0
    )  # still at work
    swept = sweep(store_of(server, WORKER).objects, KeepRule(grace_hours=0), dry_run=False)
    assert swept.uploads == 1
    assert code(worker.upload_part, **part) == "NoSuchUpload"


def test_a_policy_that_is_not_understood_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better none than one that lets pass what the policy meant to refuse."""
    statement = {"Effect": "Deny", "NotAction": "s3:GetObject", "Resource": "*"}
    (tmp_path / "odd.json").write_text(json.dumps({"Statement": [statement]}))
    monkeypatch.setattr(s3_rights, "_FOLDER", tmp_path)
    with pytest.raises(ValueError, match="odd: NotAction is not judged here"):
        policy("odd", BUCKET)
