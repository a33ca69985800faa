"""A folder as a store: killed at every step, out of space, in the way of others."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import killed_child
import pytest
from bundle_maker import BUILD_KEY, make_bundle, publish

from menagerie.format.folder import open_bundle
from zoo.errors import StoreError, StoreFull
from zoo.store import open_store
from zoo.store.base import LocalObjects
from zoo.store.inspection import probe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

# every call through which publishing and pulling change a file system
STEPS = {"open", "write", "flush", "fsync", "close", "mkdir", "rename", "replace", "unlink"}


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that is killed before its change `number` of a file system."""

    def watched(step: Callable[[], None]) -> None:
        def watch(_frame: FrameType, event: str, function: object) -> None:
            if event == "c_call" and getattr(function, "__name__", "") in STEPS:
                step()

        sys.setprofile(watch)
        work()

    return killed_child.killed_at(number, watched)


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.sweep)])
def test_killed_at_every_step_of_publishing(tmp_path: Path, stride: int) -> None:
    """Whenever the publisher dies, all that is listed is whole, and the next publish completes."""
    old = make_bundle(tmp_path / "old", build_key="aa" * 32)
    new = make_bundle(
        tmp_path / "new",
        {"weights.safetensors": os.urandom(20_000)},
        created="2030-02-01T00:00:00+00:00",
    )
    step = 0
    alive = False
    while not alive:
        step += stride
        store = open_store(str(tmp_path / f"store{step}"))
        publish(store, old)
        alive = not killed_at(step, lambda: publish(open_store(store.url), new))  # noqa: B023
        listed = store.releases()
        assert [r.build_key for r in listed] in (["aa" * 32], ["aa" * 32, BUILD_KEY])
        for release in listed:
            pulled = store.pull(release, tmp_path / f"out{step}" / release.build_key)
            assert open_bundle(pulled).document == release.document
        assert store.find("tiny", "cpu") == listed[-1]
        publish(store, new)
        assert store.find("tiny", "cpu").build_key == BUILD_KEY
        assert len(store.releases()) == 2
        assert list((tmp_path / f"store{step}" / "incoming").iterdir()) == []
    assert step > 40  # the steps were seen at all


def test_killed_at_every_step_of_pulling(tmp_path: Path) -> None:
    """Whenever the puller dies, the folder is absent or whole, and the next pull completes."""
    store = open_store(str(tmp_path / "store"))
    release = publish(store, make_bundle(tmp_path / "bundle"))
    step = 0
    alive = False
    while not alive:
        step += 1
        out = tmp_path / f"out{step}"
        alive = not killed_at(step, lambda: store.pull(release, out))  # noqa: B023
        if out.exists():
            assert open_bundle(out).document == release.document
        store.pull(release, out)
        assert open_bundle(out).document == release.document
        assert not list(tmp_path.glob(f".{out.name}.*"))
    assert step > 20


def test_the_file_size_limit_is_reported(tmp_path: Path) -> None:
    """A real EFBIG of the kernel becomes one line; nothing is listed, and later it works."""
    weights = {"weights.safetensors": os.urandom(100_000)}
    bundle = make_bundle(tmp_path / "bundle", weights)
    root = tmp_path / "store"
    code = (
        "import sys; from pathlib import Path; from zoo.store import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "try: store.admit(store.propose(Path(sys.argv[2])), None)\n"
        "except Exception as error: sys.exit(f'{type(error).__name__} {error}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root), str(bundle)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert done.stderr.startswith(f"StoreFull {root}: a file grew above the size")
    assert done.stderr.count("\n") == 1
    store = open_store(str(root))
    assert store.releases() == []
    assert list((root / "incoming").iterdir()) == []
    publish(store, bundle)
    assert len(store.releases()) == 1


def test_a_full_disk_is_foreseen(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too little space nothing is begun; the message holds both numbers."""
    usage = os.statvfs(tmp_path)
    free = ("f_bavail", 0)
    assert usage.f_bsize
    monkeypatch.setattr(os, "statvfs", lambda _: _NoSpace(usage, *free))
    with pytest.raises(StoreFull, match=r"no space left: \d+ bytes needed, 0 free\. Free some"):
        publish(open_store(str(tmp_path / "store")), bundle)
    monkeypatch.undo()
    assert open_store(str(tmp_path / "store")).releases() == []


class _NoSpace:
    """What statvfs reports of a full disk."""

    def __init__(self, real: os.statvfs_result, field: str, value: int) -> None:
        self._real = real
        self._changed = {field: value}

    def __getattr__(self, name: str) -> int:
        value: int = self._changed.get(name, getattr(self._real, name))
        return value


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_at_any_step(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whichever sync runs out of space, the error is StoreFull and what is listed is whole."""
    real = os.fsync
    for step in range(100):
        store = open_store(str(tmp_path / f"store{step}"))
        left = step

        def fsync(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(number, os.strerror(number))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        try:
            publish(store, bundle)
        except StoreFull:
            done = False
        else:
            done = True
        monkeypatch.setattr(os, "fsync", real)
        for release in store.releases():
            store.pull(release, tmp_path / f"out{step}")
        if done:
            break
        publish(store, bundle)
        assert len(store.releases()) == 1
    else:
        pytest.fail("publishing never ended")


def test_a_publisher_at_work_is_not_swept(tmp_path: Path, bundle: Path) -> None:
    """Another publisher's half file stays while that one lives, and goes when it is dead.

    What others put there stays.
    """
    root = tmp_path / "store"
    objects = LocalObjects(root)
    with objects._entry("notes/half", 4) as alive:
        alive.write(b"half")
        publish(open_store(str(root)), bundle)
    assert objects.read_small("notes/half", 4) == b"half"
    orphan = root / "incoming" / ("0" * 32)
    orphan.write_bytes(b"left by a killed process")
    stranger = root / "incoming" / "letter.txt"
    stranger.write_bytes(b"somebody's")
    objects.put_small("notes/one", b"1")
    assert list((root / "incoming").iterdir()) == [stranger]


def test_a_store_that_cannot_be(tmp_path: Path, bundle: Path) -> None:
    """A file where the folder should be is one line, for reading and for writing."""
    (tmp_path / "file").touch()
    store = open_store(str(tmp_path / "file" / "store"))
    with pytest.raises(StoreError, match=r"not a directory .* Check the folder"):
        publish(store, bundle)
    with pytest.raises(StoreError, match="not a directory"):
        store.releases()
    assert [finding.detail == "" for finding in probe(store.objects)] == [False] * 6


@pytest.mark.parametrize("key", ["../evil", "a/../../evil", "/etc/evil", "a//b", "./a"])
def test_no_key_leads_out(tmp_path: Path, key: str) -> None:
    """Keys are checked before they become paths."""
    objects = LocalObjects(tmp_path / "store")
    with pytest.raises(StoreError, match="is not a key of a store"):
        objects.put_small(key, b"evil")
    with pytest.raises(StoreError, match="is not a key of a store"):
        objects.read_small(key, 10)
