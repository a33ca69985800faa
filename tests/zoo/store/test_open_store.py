"""Addresses of stores and the options of S3."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from zoo.errors import UsageError
from zoo.store import Addressing, Checksums, S3Options, open_store
from zoo.store.base import LocalObjects
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from pathlib import Path


def test_addresses_of_folders(tmp_path: Path) -> None:
    """A path and a file URL name the same folder, spaces and all."""
    folder = tmp_path / "my store"
    for url in (
        str(folder),
        f"file://{tmp_path}/my%20store",
        f"file://localhost{tmp_path}/my store",
    ):
        objects = open_store(url)._objects
        assert isinstance(objects, LocalObjects)
        assert objects._root == folder
        assert objects.url == url
    assert not folder.exists()


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [("s3://zoo", "zoo", ""), ("s3://zoo/", "zoo", ""), ("s3://zoo/a/b/", "zoo", "a/b/")],
)
def test_addresses_of_buckets(url: str, bucket: str, prefix: str) -> None:
    """A bucket, with a prefix or without; nothing is asked of the network yet."""
    objects = open_store(url, S3Options())._objects
    assert isinstance(objects, S3Objects)
    assert (objects._bucket, objects._prefix) == (bucket, prefix)


@pytest.mark.parametrize(
    "url", ["", "http://x/y", "s3://", "file://host/x", "file://", "s3://zoo?x=1", "s4://zoo"]
)
def test_other_addresses(url: str) -> None:
    """The message shows the three forms."""
    with pytest.raises(UsageError, match="Give a folder, file:///folder or s3://bucket/prefix"):
        open_store(url)


def test_options_from_the_environment(tmp_path: Path) -> None:
    """Every field has its variable; empty ones and those of others are passed over."""
    (tmp_path / "ca.pem").touch()
    options = S3Options.from_environment(
        {
            "MENAGERIE_S3_ENDPOINT": "https://s3.example.org",
            "MENAGERIE_S3_ACCESS_KEY": "me",
            "MENAGERIE_S3_SECRET_KEY": "hush",
            "MENAGERIE_S3_ADDRESSING": "virtual",
            "MENAGERIE_S3_CHECKSUMS": "when_required",
            "MENAGERIE_S3_PART_BYTES": "5242880",
            "MENAGERIE_S3_CA_BUNDLE": str(tmp_path / "ca.pem"),
            "MENAGERIE_S3_REGION": "",
            "MENAGERIE_HOME": "/elsewhere",
        }
    )
    assert options.endpoint == "https://s3.example.org"
    assert options.addressing is Addressing.VIRTUAL
    assert options.checksums is Checksums.REQUIRED
    assert options.part_bytes == 5 * 2**20
    assert options.ca_bundle == tmp_path / "ca.pem"
    assert options.region == "us-east-1"
    assert "hush" not in repr(options)
    assert "hush" not in f"{options}{options.secret_key}"
    assert options.secret_key is not None
    assert options.secret_key.get_secret_value() == "hush"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ENDPIONT", "http://x", "Did you mean MENAGERIE_S3_ENDPOINT?"),
        ("ZZZ", "1", "Unset it"),
        (
            "ENDPOINT",
            "s3.example.org",
            "MENAGERIE_S3_ENDPOINT: is not of the form",
        ),
        ("PART_BYTES", "1", "1 is not from 5.24288e+06"),
        ("PART_BYTES", "much", "'much' is not a whole number"),
        ("CA_BUNDLE", "/no/ca.pem", "MENAGERIE_S3_CA_BUNDLE: /no/ca.pem is no file"),
        ("ADDRESSING", "left", "'auto' or 'path' or 'virtual'"),
    ],
)
def test_wrong_options(name: str, value: str, says: str) -> None:
    """An unknown variable or a wrong value is misuse, said in a line that names the variable."""
    with pytest.raises(UsageError) as caught:
        S3Options.from_environment({f"MENAGERIE_S3_{name}": value})
    assert says in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_folder_needs_no_boto3() -> None:
    """Opening a local store imports neither boto3 nor torch nor Prefect."""
    code = (
        "import sys; from zoo.store import open_store; open_store('x').releases()\n"
        "print({'boto3', 'botocore', 'torch', 'prefect'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
