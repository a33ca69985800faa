"""Addresses of stores and the options of S3."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from zoo.errors import UsageError
from zoo.store import open_store
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
        objects = open_store(url).objects
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
    objects = open_store(url).objects
    assert isinstance(objects, S3Objects)
    assert (objects._bucket, objects._prefix) == (bucket, prefix)


@pytest.mark.parametrize(
    "url", ["", "http://x/y", "s3://", "file://host/x", "file://", "s3://zoo?x=1", "s4://zoo"]
)
def test_other_addresses(url: str) -> None:
    """The message shows the three forms."""
    with pytest.raises(UsageError, match="Give a folder, file:///folder or s3://bucket/prefix"):
        open_store(url)


def test_botocore_s_own_variables_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Server, keys, region, tries and checksums; what has no variable is set in a profile."""
    (tmp_path / "config").write_text(
        "[profile team]\ns3 =\n    addressing_style = virtual\nregion = eu-north-1\n"
    )
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "team",
        "AWS_ENDPOINT_URL_S3": "https://s3.example.org",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_MAX_ATTEMPTS": "2",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }.items():
        monkeypatch.setenv(name, value)
    objects = open_store("s3://zoo/prefix").objects
    assert isinstance(objects, S3Objects)
    address = objects.link("key", "key")
    assert address is not None
    assert address.startswith("https://zoo.s3.example.org/prefix/key?")
    assert "Credential=me%2F" in address
    assert "eu-north-1" in address
    config = objects._client.meta.config
    assert config.retries["total_max_attempts"] == 2
    assert config.request_checksum_calculation == "when_required"
    assert objects.place == "s3://zoo/prefix at https://s3.example.org"


@pytest.mark.parametrize(
    ("variable", "profile", "used"),
    [
        (None, None, "when_required"),
        ("", None, "when_required"),
        (None, "when_supported", "when_supported"),
        ("", "when_supported", "when_supported"),
        ("when_required", "when_supported", "when_required"),
        ("when_supported", None, "when_supported"),
    ],
)
def test_checksums_are_sent_where_a_variable_or_the_profile_asks(
    variable: str | None,
    profile: str | None,
    used: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The variable goes before the profile; an empty one says nothing."""
    written = f"request_checksum_calculation = {profile}\n" if profile else ""
    (tmp_path / "config").write_text(f"[profile team]\nregion = eu-north-1\n{written}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION", raising=False)
    if variable is not None:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", variable)
    objects = open_store("s3://zoo").objects
    assert isinstance(objects, S3Objects)
    assert objects._client.meta.config.request_checksum_calculation == used


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AWS_ENDPOINT_URL_S3", "s3.example.org", "invalid endpoint: s3.example.org"),
        ("AWS_PROFILE", "nobody", "the config profile (nobody) could not be found"),
        ("AWS_MAX_ATTEMPTS", "many", "'many'"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "never", "when_required"),
    ],
)
def test_wrong_variables(name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What botocore cannot mean is misuse, said in a line before anything is asked."""
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"Correct the AWS_\* variable or the profile") as caught:
        open_store("s3://zoo").releases()
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
