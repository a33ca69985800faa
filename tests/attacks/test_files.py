"""Archives, folders and arrays that are not what they say."""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bundle_maker import make_bundle

from menagerie.durable import write_durably
from menagerie.errors import StoreError
from menagerie.format.archive import pack, unpack
from menagerie.format.folder import open_bundle, read_manifest
from menagerie.store import pull, s3
from menagerie.tensor_files import read_array, read_tensors, write_outputs
from menagerie.typed_json import Malformed, load
from zoo.errors import ArtifactError, TooLarge, UsageError
from zoo.store import KeepRule, Store
from zoo.store.coordination import LeaseTiming, hold_lease
from zoo.store.garbage_collection import sweep
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.store import Release


@pytest.mark.parametrize("where", ["before", "behind", "comment"])
def test_an_archive_holds_nothing_else(tmp_path: Path, where: str) -> None:
    """Bytes around the entries, which another reader could take for another archive."""
    archive = pack(make_bundle(tmp_path / "made"), tmp_path / "tiny.zip")
    whole = archive.read_bytes()
    if where == "comment":
        with zipfile.ZipFile(archive, "a") as opened:
            opened.comment = b"hidden"
    else:
        archive.write_bytes(b"junk" + whole if where == "before" else whole + b"junk")
    with pytest.raises(ArtifactError):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    archive.write_bytes(whole)
    assert unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", ["file", "folder", "manifest"])
def test_a_pull_follows_no_planted_link(
    promoted: Callable[..., Release], store: Store, tmp_path: Path, kind: str
) -> None:
    """What a link at its partial folder, or in it, leads to is neither removed nor written."""
    release = promoted()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "weights.safetensors").write_bytes(b"precious")
    partial = tmp_path / f".out.{release.build_key[:16]}.partial"
    if kind == "folder":
        partial.symlink_to(victim)
    else:
        partial.mkdir()
        name = "weights.safetensors" if kind == "file" else ".manifest.json.partial"
        (partial / name).symlink_to(victim / "weights.safetensors")
    assert open_bundle(store.pull(store.find("tiny", "cpu"), tmp_path / "out"))
    assert [p.name for p in victim.iterdir()] == ["weights.safetensors"]
    assert (victim / "weights.safetensors").read_bytes() == b"precious"


def test_a_pull_completes_nothing_through_a_link(
    promoted: Callable[..., Release], store: Store, tmp_path: Path
) -> None:
    """A folder that holds the release already, and a link where its signature would be gathered."""
    promoted()
    store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    (tmp_path / "out" / ".manifest.json.partial").symlink_to(tmp_path / "victim")
    with pytest.raises((StoreError, UsageError)):
        store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    assert not (tmp_path / "victim").exists()


def test_what_is_written_durably_follows_no_link(tmp_path: Path) -> None:
    """Not even one that leads nowhere."""
    (tmp_path / "partial").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        write_durably(tmp_path / "kept", b"x", partial=tmp_path / "partial")
    assert not (tmp_path / "victim").exists()


def test_a_pull_gathers_where_no_other_user_writes(
    promoted: Callable[..., Release], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may write next to it turns the partial folder into a link: not followed.

    The folder is for its owner alone until it is whole, whatever the umask; then it is as wide as
    the umask has it.
    """
    release = promoted()
    victim = tmp_path / "victim"
    victim.mkdir()
    partial = tmp_path / f".out.{release.build_key[:16]}.partial"
    fetch, modes = pull.fetch_blob, []
    one_by_one = threading.Lock()  # files come side by side

    def fetched(objects: object, path: Path, *others: object) -> None:
        with one_by_one:
            if partial.is_symlink():
                partial.unlink()
                (tmp_path / "moved").rename(partial)
            modes.append(stat.S_IMODE(partial.stat().st_mode))
            partial.rename(tmp_path / "moved")
            partial.symlink_to(victim)
        fetch(objects, path, *others)

    monkeypatch.setattr(pull, "fetch_blob", fetched)
    before = os.umask(0o002)
    try:
        with pytest.raises(StoreError, match="another process"):
            store.pull(store.find("tiny", "cpu"), tmp_path / "out")
        assert list(victim.iterdir()) == []
        assert set(modes) == {0o700}
        (tmp_path / "out").unlink()
        monkeypatch.setattr(pull, "fetch_blob", fetch)
        out = store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE(out.stat().st_mode) == 0o775


def test_a_pull_writes_into_no_other_users_folder(
    promoted: Callable[..., Release], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that another user has prepared at the partial folder's place is refused by name."""
    release = promoted()
    (tmp_path / f".out.{release.build_key[:16]}.partial").mkdir(mode=0o777)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreError, match="belongs to another user"):
        store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pull_resumes_no_file_of_two_names(
    promoted: Callable[..., Release], store: Store, tmp_path: Path
) -> None:
    """A hard link to a file outside would be written through."""
    release = promoted()
    victim = tmp_path / "victim"
    victim.write_bytes(b"the")
    partial = tmp_path / f".out.{release.build_key[:16]}.partial"
    partial.mkdir()
    (partial / "weights.safetensors").hardlink_to(victim)
    assert store.pull(store.find("tiny", "cpu"), tmp_path / "out")
    assert victim.read_bytes() == b"the"


def test_a_manifest_is_a_regular_file(tmp_path: Path) -> None:
    """A pipe would be waited for, a device read without end."""
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_manifest(tmp_path / "manifest.json")
    assert stat.S_ISCHR(Path("/dev/zero").stat().st_mode)
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_manifest(Path("/dev/zero"))


def test_keys_are_read_in_linear_time() -> None:
    """Eight times as many keys take about eight times as long; quadratic time would be 64 times."""

    def seconds(count: int) -> float:
        text = "{" + ",".join(f'"k{i}":0' for i in range(count)) + "}"
        best = []
        for _ in range(3):
            began = time.process_time()
            load(text)
            best.append(time.process_time() - began)
        return min(best)

    assert seconds(400_000) < 24 * seconds(50_000)


def test_a_shape_of_a_million_axes_is_not_multiplied_out(tmp_path: Path) -> None:
    """Whose product would have millions of digits; numpy has no more than 64 axes."""
    shape = ",".join(["9223372036854775807"] * 300_000)
    header = f'{{"w":{{"dtype":"U8","shape":[{shape}],"data_offsets":[0,0]}}}}'.encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    began = time.process_time()
    with pytest.raises(ArtifactError, match="300,000 axes"):
        read_tensors(path)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_json_has_no_infinity(number: str) -> None:
    """C's reader refuses it; read as an infinity it would pass a bound from above."""
    with pytest.raises(Malformed, match="larger than any"):
        load(f'{{"absolute": {number}}}')


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\uDC00": 1}', r'["\ud83d\ud83d\ude00"]'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """What was read could not be written again; a whole pair, and an escaped escape, can."""
    with pytest.raises(Malformed, match="surrogates not allowed"):
        load(text)
    assert load(r'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", r"\ud800"]


def test_an_array_is_no_larger_than_its_file(tmp_path: Path) -> None:
    """Whatever the header of a `.npy` file claims: 40 TB here."""
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(1, np.float32))
    path.write_bytes(path.read_bytes().replace(b"(1,), }" + b" " * 13, b"(10000000000000,), }"))
    assert b"(10000000000000,)" in path.read_bytes()
    with pytest.raises(UsageError, match=r"cannot be read as \.npy"):
        read_array(str(path))


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "a\\b"])
def test_an_outputs_name_is_no_path(tmp_path: Path, name: str) -> None:
    """A member of an `.npz` with it would be unpacked elsewhere."""
    with pytest.raises(UsageError):
        write_outputs({name: np.zeros(1), "b": np.zeros(1)}, tmp_path / "out.npz")


def test_an_output_may_be_called_file(tmp_path: Path) -> None:
    """Which is numpy's own name for something else."""
    write_outputs({"file": np.arange(3)}, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        np.testing.assert_array_equal(archive["file"], [0, 1, 2])


def test_one_damaged_release_does_not_stop_the_sweep(
    promoted: Callable[..., Release], store: Store
) -> None:
    """With `pass_damaged` a sweep goes on; what the damaged one may name stays."""
    promoted("ab")
    kept, spare = "e" * 64, "d" * 64
    damaged = f"releases/tiny/cpu/{'cd' * 32}.json"
    store.objects.put_small(damaged, f'{{"files": "{kept}" ...'.encode())
    for digest in (kept, spare):
        store.objects.put_small(f"blobs/{digest[:2]}/{digest}", b"x")
    rule = KeepRule(releases=1, grace_hours=0)
    with pytest.raises(ArtifactError, match="nothing was swept"):
        sweep(store.objects, rule, dry_run=False)
    sweep(store.objects, rule.model_copy(update={"pass_damaged": True}), dry_run=False)
    assert store.objects.size_of(f"blobs/{kept[:2]}/{kept}") == 1
    assert store.objects.size_of(f"blobs/{spare[:2]}/{spare}") is None
    assert store.find("tiny", "cpu")


def test_a_forged_lease_does_not_block_for_ever(store: Store) -> None:
    """A note that keeps changing is waited for up to a limit, and then passed by."""
    key, ended = f"leases/{'ab' * 32}.json", threading.Event()

    def write(beat: int) -> None:
        process = {"host": "elsewhere-0123456789ab", "pid": 1, "born": "0" * 12}
        note = {"owner": "x", "host": "h", "process": process, "beat": beat}
        store.objects.put_small(key, json.dumps(note).encode())

    def forge() -> None:
        for beat in itertools.count(1):
            if ended.is_set():
                return
            write(beat)

    write(0)  # it is there when it is looked for
    forger = threading.Thread(target=forge)
    forger.start()
    try:
        patience = LeaseTiming(look=0.01, settle=1, longest=0.3)
        with hold_lease(store.objects, "ab" * 32, patience) as waited:
            assert waited
    finally:
        ended.set()
        forger.join()


def test_the_smallest_socket_is_no_bundle_file(tmp_path: Path) -> None:
    """A socket in a bundle's folder is named, not opened."""
    bundle = make_bundle(tmp_path / "b")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(bundle / "s"))
        with pytest.raises(ArtifactError, match="not a regular file"):
            open_bundle(bundle)


def test_signing_is_not_loaded_by_a_reader() -> None:
    """`import menagerie.store` brings neither TUF nor cryptography: numpy is all that it needs."""
    code = (
        "import sys, menagerie.store, menagerie.session, menagerie.trust\n"
        "print(sorted({'tuf', 'cryptography', 'securesystemslib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("page", [{}, {"Contents": []}])
def test_a_listing_without_end_ends(
    page: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that always says that there is more, and never what, is given up."""
    monkeypatch.setattr(s3, "MOST_PAGES", 50)
    objects = S3Objects("zoo", "")
    pages = itertools.repeat(page)
    paginator = SimpleNamespace(paginate=lambda **_: pages)
    objects.__dict__["_client"] = SimpleNamespace(get_paginator=lambda _: paginator)
    with pytest.raises(TooLarge, match="50 pages"):
        objects.list_keys("releases/")
