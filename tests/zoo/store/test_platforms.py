"""A release is for a platform: the caller gets one that the machine can run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import make_bundle

from menagerie import host
from menagerie.format.bundle_manifest import parse_manifest
from menagerie.format.folder import open_bundle
from menagerie.host import RUNTIME_ABI
from zoo.errors import ArtifactError, NotInStore
from zoo.store import KeepRule, Store
from zoo.store.base import LocalObjects
from zoo.store.garbage_collection import sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X86 = {"system": "linux", "machine": "x86_64", "runtime_abi": RUNTIME_ABI}
ARM = {"system": "linux", "machine": "aarch64", "runtime_abi": RUNTIME_ABI}
MAC = {"system": "darwin", "machine": "arm64", "runtime_abi": RUNTIME_ABI}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """In a folder of its own."""
    return Store(LocalObjects(tmp_path / "store", "store"))


@pytest.fixture
def publish(store: Store, tmp_path: Path) -> Callable[..., str]:
    """Publishes a build of `tiny` of that day's hour; its platform."""

    def publish(digits: str, hour: int, requires: dict[str, Any], **changes: Any) -> str:
        bundle = make_bundle(
            tmp_path / digits,
            build_key=digits * 32,
            requires=requires,
            created=f"2030-01-31T{hour}:00:00+00:00",
            **changes,
        )
        return store.admit(store.propose(bundle), None).platform

    return publish


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Lets this machine seem another."""

    def on(system: str, machine: str) -> None:
        monkeypatch.setattr(host.platform, "system", lambda: system)
        monkeypatch.setattr(host.platform, "machine", lambda: machine)

    return on


def test_a_later_release_for_arm_does_not_shadow_the_one_for_x86(
    store: Store, publish: Callable[..., str], on: Callable[[str, str], None]
) -> None:
    """Each machine finds its own, whichever came last; a build by its key is found anywhere."""
    assert publish("aa", 10, X86) == "cpu-linux-x86_64"
    assert publish("bb", 11, ARM) == "cpu-linux-arm64"
    on("Linux", "x86_64")
    assert store.find("tiny", "cpu").build_key == "aa" * 32
    assert store.find("tiny", "cpu", platform="cpu-linux-arm64").build_key == "bb" * 32
    assert store.find("tiny", "cpu", "bb" * 32).platform == "cpu-linux-arm64"
    on("Linux", "aarch64")
    assert store.find("tiny", "cpu").build_key == "bb" * 32


def test_what_no_machine_like_this_runs_is_said_to_be_elsewhere(
    store: Store, publish: Callable[..., str], on: Callable[[str, str], None]
) -> None:
    """The platforms that there are, and how to get one all the same."""
    publish("bb", 11, ARM)
    on("Linux", "x86_64")
    with pytest.raises(NotInStore) as raised:
        store.find("tiny", "cpu")
    assert "no release of tiny for cpu-linux-x86_64" in str(raised.value)
    assert "It has cpu-linux-arm64: name one with --platform" in str(raised.value)


def test_releases_for_macs_are_found_where_they_are_emulated(
    store: Store, publish: Callable[..., str], on: Callable[[str, str], None]
) -> None:
    """On Linux a Metal release is one that can be run; the CPU's of a Mac is not."""
    assert publish("cc", 10, MAC, target="metal") == "metal-macos-arm64"
    publish("dd", 10, MAC)
    for system, machine in (("Linux", "x86_64"), ("Darwin", "arm64")):
        on(system, machine)
        assert store.find("tiny", "metal").build_key == "cc" * 32
    on("Linux", "x86_64")
    with pytest.raises(NotInStore, match="cpu-macos-arm64"):
        store.find("tiny", "cpu")


def test_every_platform_keeps_its_newest(
    store: Store, publish: Callable[..., str], on: Callable[[str, str], None]
) -> None:
    """Three later releases for one platform do not make a sweep take the other's only one."""
    publish("aa", 10, X86)
    for hour, digits in enumerate(("bb", "cc", "dd"), 11):
        publish(digits, hour, ARM)
    swept = sweep(store.objects, KeepRule(releases=1, grace_hours=0), dry_run=False)
    assert len(swept.releases) == 2
    on("Linux", "x86_64")
    assert store.find("tiny", "cpu").build_key == "aa" * 32
    on("Linux", "arm64")
    assert store.find("tiny", "cpu").build_key == "dd" * 32


def test_what_cannot_be_listed_is_found_by_its_build(
    store: Store,
    publish: Callable[..., str],
    on: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a web server: where no ledger was signed, nothing says which release is the latest."""
    publish("aa", 10, X86)
    monkeypatch.setattr(store._reader, "list_keys", lambda _: None)
    on("Linux", "x86_64")
    assert store.find("tiny", "cpu", "aa" * 32).build_key == "aa" * 32
    with pytest.raises(NotInStore, match="cannot be listed, nor has a ledger"):
        store.find("tiny", "cpu")


def test_a_manifest_names_the_platform_that_it_requires(tmp_path: Path) -> None:
    """Written with the bundle; another is refused, and so is a missing one."""
    document = open_bundle(make_bundle(tmp_path / "made", requires=ARM)).document
    fields = json.loads(document)
    assert (fields["version"], fields["platform"]) == (2, "cpu-linux-arm64")
    assert fields["runtime"] == "cpu"
    wrong = json.dumps(fields | {"platform": "cpu-linux-x86_64"}).encode()
    with pytest.raises(ArtifactError, match="platform is 'cpu-linux-x86_64', but it requires"):
        parse_manifest(wrong, "manifest.json")
    del fields["runtime"]
    with pytest.raises(ArtifactError, match="runtime: is missing"):
        parse_manifest(json.dumps(fields).encode(), "manifest.json")
