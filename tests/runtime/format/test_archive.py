"""Packed bundles: equal bytes for equal bundles, and no archive can do harm."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bundle_maker import FILES, make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from menagerie.format.archive import pack, unpack
from menagerie.format.bundle_manifest import FileEntry
from menagerie.format.folder import open_bundle
from menagerie.typed_json import plain
from zoo.errors import ArtifactError, StoreFull, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def archive(bundle: Path, tmp_path: Path) -> Path:
    """A sound archive."""
    return pack(bundle, tmp_path / "tiny.zip")


def rewrite(archive: Path, **changes: bytes | None) -> None:
    """Writes the archive anew, as an attacker would, with entries replaced, added or left out."""
    with zipfile.ZipFile(archive) as old:
        entries: dict[str, bytes | None] = {n: old.read(n) for n in old.namelist()}
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in (entries | changes).items():
            if content is not None:
                new.writestr(name, content)


def refusal(archive: Path, folder: Path) -> str:
    """What unpacking says; it leaves nothing behind."""
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(ArtifactError) as caught:
        unpack(archive, folder)
    assert sorted(folder.parent.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unpacked_is_what_was_packed(bundle: Path, archive: Path, tmp_path: Path) -> None:
    """The folder opens and its manifest is the same, byte for byte."""
    out = unpack(archive, tmp_path / "new" / "out")
    assert open_bundle(out).document == open_bundle(bundle).document


def test_equal_bundles_make_equal_archives(tmp_path: Path) -> None:
    """Neither time nor place nor order of writing shows in the archive."""
    one = pack(make_bundle(tmp_path / "one"), tmp_path / "one.zip")
    two = make_bundle(tmp_path / "two", dict(reversed(FILES.items())))
    two.chmod(0o700)
    assert pack(two, tmp_path / "two.zip").read_bytes() == one.read_bytes()


def test_the_archive_is_an_ordinary_zip(archive: Path) -> None:
    """Rule 9 to the letter: order, dates, modes, no compression."""
    with zipfile.ZipFile(archive) as opened:
        assert opened.namelist() == ["manifest.json", *sorted(FILES)]
        for entry in opened.infolist():
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)
            assert entry.external_attr >> 16 == stat.S_IFREG | 0o644
            assert entry.compress_type == zipfile.ZIP_STORED


@settings(max_examples=30)
@given(content=st.binary(max_size=5000))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any content comes back."""
    top = tmp_path_factory.mktemp("trip")
    bundle = make_bundle(top / "bundle", {"weights.safetensors": content})
    out = unpack(pack(bundle, top / "a.zip"), top / "out")
    assert (out / "weights.safetensors").read_bytes() == content
    shutil.rmtree(top)


def test_a_damaged_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    """Packing checks the hashes and leaves no file."""
    (bundle / "report.json").write_text("[]")
    with pytest.raises(ArtifactError):
        pack(bundle, tmp_path / "tiny.zip")
    assert not (tmp_path / "tiny.zip").exists()


def test_only_an_empty_place_is_unpacked_into(archive: Path, tmp_path: Path) -> None:
    """An empty folder is fine; anything in the way is left alone."""
    (tmp_path / "empty").mkdir()
    unpack(archive, tmp_path / "empty")
    with pytest.raises(UsageError, match="not empty"):
        unpack(archive, tmp_path / "empty")
    with pytest.raises(UsageError, match="not a folder"):
        unpack(archive, archive)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        unpack(archive, tmp_path / "link")


def test_no_archive(tmp_path: Path) -> None:
    """A missing file and a file that is no zip are distinct errors."""
    assert "no such file" in refusal(tmp_path / "none.zip", tmp_path / "out")
    (tmp_path / "text.zip").write_text("not a zip")
    assert "not a sound zip" in refusal(tmp_path / "text.zip", tmp_path / "out")


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "..\\evil"])
def test_escaping_entry(archive: Path, tmp_path: Path, name: str) -> None:
    """An entry outside the manifest is refused before any is written, so none can escape."""
    rewrite(archive, **{name: b"evil"})
    assert "is not listed in the manifest" in refusal(archive, tmp_path / "out")


def test_escaping_entry_that_is_listed(archive: Path, bundle: Path, tmp_path: Path) -> None:
    """Listing an escape in the manifest does not help: its paths are checked first."""
    manifest = open_bundle(bundle).manifest
    files = {**manifest.files, "evil": FileEntry("../evil", "0" * 64, 4)}
    document = plain(replace(manifest, files=files))
    changes = {"manifest.json": json.dumps(document).encode(), "../evil": b"evil"}
    rewrite(archive, **changes)
    assert "not a relative path" in refusal(archive, tmp_path / "out")


def test_link_entry(archive: Path, tmp_path: Path) -> None:
    """An entry with the mode of a symbolic link is refused."""
    rewrite(archive, **{"report.json": None})
    entry = zipfile.ZipInfo("report.json")
    entry.create_system = 3
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr(entry, "/etc/passwd")
    assert "not a regular file" in refusal(archive, tmp_path / "out")


def test_folder_entry(archive: Path, tmp_path: Path) -> None:
    """Entries for folders are not part of the format."""
    rewrite(archive, **{"programs/": b""})
    assert "not a regular file" in refusal(archive, tmp_path / "out")


def test_duplicate_entry(archive: Path, tmp_path: Path) -> None:
    """Of two entries with one name, readers would disagree which counts."""
    with (
        zipfile.ZipFile(archive, "a") as opened,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        opened.writestr("report.json", b"[]")
    assert "'report.json' is there twice" in refusal(archive, tmp_path / "out")


def test_compressed_entry_is_a_bomb(archive: Path, tmp_path: Path) -> None:
    """Ten megabytes of zeros in ten kilobytes are refused before one is unpacked."""
    rewrite(archive, **{"report.json": None})
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("report.json", bytes(10_000_000))
    assert "is compressed, not stored" in refusal(archive, tmp_path / "out")


def test_overlapping_entries_are_a_bomb(archive: Path, tmp_path: Path) -> None:
    """Stored entries that share their bytes cannot unpack to more than the archive is."""
    rewrite(archive, **{"report.json": bytes(4000)})
    with zipfile.ZipFile(archive, "a") as opened:
        entry = opened.getinfo("report.json")
        for count in range(3):
            copy = zipfile.ZipInfo(f"copy{count}")
            copy.file_size = copy.compress_size = entry.file_size
            copy.CRC, copy.header_offset = entry.CRC, entry.header_offset
            opened.filelist.append(copy)
            opened.NameToInfo[copy.filename] = copy
        opened._didModify = True  # type: ignore[attr-defined]
    assert "its entries overlap" in refusal(archive, tmp_path / "out")


def test_encrypted_entry(archive: Path, tmp_path: Path) -> None:
    """An entry that is flagged as encrypted is refused."""
    content = bytearray(archive.read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 8] |= 1
    archive.write_bytes(content)
    assert "is encrypted" in refusal(archive, tmp_path / "out")


def test_missing_entry(archive: Path, tmp_path: Path) -> None:
    """A file that the manifest lists must be there; so must the manifest."""
    rewrite(archive, **{"report.json": None})
    assert "'report.json' is missing" in refusal(archive, tmp_path / "out")
    rewrite(archive, **{"manifest.json": None})
    assert "has no manifest.json" in refusal(archive, tmp_path / "out")


def test_entry_of_another_size(archive: Path, tmp_path: Path) -> None:
    """Sizes are compared before anything is unpacked."""
    rewrite(archive, **{"report.json": b"{ }"})
    assert "has not the size" in refusal(archive, tmp_path / "out")


def test_entry_with_other_bytes(archive: Path, tmp_path: Path) -> None:
    """Bytes of the right size but the wrong hash never appear under the folder's name."""
    rewrite(archive, **{"report.json": b"[]"})
    assert "sha256" in refusal(archive, tmp_path / "out")


def test_corrupt_bytes(archive: Path, tmp_path: Path) -> None:
    """A flipped bit that zip's own CRC finds is reported as our error."""
    content = archive.read_bytes()
    archive.write_bytes(content.replace(b"the weights", b"the Weights"))
    assert "not a sound zip" in refusal(archive, tmp_path / "out")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a sound archive."""
    top = tmp_path_factory.mktemp("sound")
    return pack(make_bundle(top / "bundle"), top / "a.zip").read_bytes()


@given(data=st.data())
def test_truncated_archive(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, data: st.DataObject
) -> None:
    """Wherever the archive ends too soon, it is refused."""
    archive = tmp_path_factory.getbasetemp() / "cut.zip"
    archive.write_bytes(sound[: data.draw(st.integers(0, len(sound) - 1))])
    with pytest.raises(ArtifactError):
        unpack(archive, archive.with_name("cut"))


def test_full_disk(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without space, neither an archive nor a part of it remains."""
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StoreFull, match="bytes needed, 10 free"):
        pack(bundle, tmp_path / "tiny.zip")
    assert {path.name for path in tmp_path.iterdir()} == {"bundle"}
