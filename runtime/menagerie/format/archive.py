"""Bundles as one zip file with the same bytes on every machine: packing and unpacking."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
import zipfile
from pathlib import Path

from menagerie.durable import disk_errors, require_space, sync
from menagerie.errors import ArtifactError, UsageError
from menagerie.format.bundle_manifest import (
    MANIFEST,
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    SIGNATURE,
    BundleManifest,
    parse_manifest,
)
from menagerie.format.folder import Bundle, open_bundle

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that zip can represent
_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_ENCRYPTED = 0x1
_CHUNK = 2**20
_LOCAL_HEADER, _NAME_LENGTHS, _END_RECORD = 30, 26, 22  # bytes, from PKWARE's APPNOTE 4.3
_AGAIN = "The archive is damaged or was not made by Menagerie: get it again"


def pack(folder: Path, zip_path: Path) -> Path:
    """Pack the bundle `folder` into `zip_path`, which is replaced atomically.

    The archive's bytes depend only on the bundle's: manifest.json first, then the files by name,
    uncompressed (weights do not compress, and a reader then needs no limit on inflation). Raise
    ArtifactError if the folder is not a valid bundle, StoreFull if there is no space.
    """
    bundle = open_bundle(folder)
    size = len(bundle.document) + bundle.manifest.size
    partial = zip_path.with_name(f".{zip_path.name}.partial")
    with disk_errors(zip_path.parent, size):
        require_space(zip_path.parent, size)
        try:
            _write_zip(bundle, partial)
            sync(partial)
            partial.replace(zip_path)
        finally:
            partial.unlink(missing_ok=True)
        sync(zip_path.parent)
    return zip_path


def unpack(zip_path: Path, folder: Path) -> Path:
    """Unpack an archive into `folder`, which must be absent or empty, as a complete bundle.

    Raise ArtifactError if the archive breaks rule 9 of FORMAT.md or its bundle any other rule,
    UsageError if `folder` is not empty, StoreFull if there is no space for the files.
    """
    require_free_place(folder)
    size = zip_path.stat().st_size if zip_path.is_file() else 0
    with disk_errors(folder.parent, size):
        folder.parent.mkdir(parents=True, exist_ok=True)
        require_space(folder.parent, size)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            _extract(zip_path, scratch)
            open_bundle(scratch)
            scratch.chmod(0o755)
            scratch.replace(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        sync(folder.parent)
    return folder


def require_free_place(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent or an empty folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(str(folder), "is a link or a file, not a folder", "Choose another place")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(str(folder), "exists and is not empty", "Remove it or choose another")


def _write_zip(bundle: Bundle, path: Path) -> None:
    signature = () if bundle.signature is None else (SIGNATURE,)
    bundle.require_whole()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in (MANIFEST, *signature, *sorted(bundle.manifest.listed)):
            source = bundle.folder / name
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            entry.file_size = source.stat().st_size
            with source.open("rb") as reader, archive.open(entry, "w") as writer:
                shutil.copyfileobj(reader, writer, _CHUNK)


def _extract(zip_path: Path, scratch: Path) -> None:
    place = str(zip_path)
    try:
        with zipfile.ZipFile(zip_path) as archive:
            entries = _checked_entries(archive, zip_path)
            if MANIFEST not in entries:
                raise ArtifactError(place, f"has no {MANIFEST}", _AGAIN)
            with archive.open(MANIFEST) as file:
                document = file.read(MAX_MANIFEST_BYTES + 1)
            manifest = parse_manifest(document, f"{place}/{MANIFEST}")
            _check_contents(entries, manifest, place)
            _check_layout(archive, zip_path)
            for name, entry in entries.items():
                _extract_entry(archive, entry, scratch / name)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, struct.error) as error:
        raise ArtifactError(place, f"is not a sound zip archive: {error}", _AGAIN) from None
    except FileNotFoundError:
        raise ArtifactError(place, "there is no such file", "Check the path") from None


def _checked_entries(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Check the limits of rule 9 before unpacking; the manifest's names are compared later."""
    place = str(path)
    listed = archive.infolist()
    if len(listed) > MAX_FILES + 1:
        raise ArtifactError(place, f"has more than {MAX_FILES + 1:,} entries", _AGAIN)
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in listed:
        if entry.orig_filename in entries:
            raise ArtifactError(place, f"entry {entry.orig_filename!r} is there twice", _AGAIN)
        _check_entry(entry, place)
        entries[entry.orig_filename] = entry
    # stored entries that do not overlap cannot hold more than the archive itself
    if sum(entry.file_size for entry in listed) > path.stat().st_size:
        fact = "its entries overlap: it would unpack to more than it is"
        raise ArtifactError(place, fact, _AGAIN)
    return entries


def _check_entry(entry: zipfile.ZipInfo, place: str) -> None:
    mode = entry.external_attr >> 16
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise ArtifactError(place, f"entry {entry.filename!r} is compressed, not stored", _AGAIN)
    if entry.flag_bits & _ENCRYPTED:
        raise ArtifactError(place, f"entry {entry.filename!r} is encrypted", _AGAIN)
    if entry.filename.endswith("/") or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
        raise ArtifactError(place, f"entry {entry.filename!r} is not a regular file", _AGAIN)


def _check_contents(
    entries: dict[str, zipfile.ZipInfo], manifest: BundleManifest, place: str
) -> None:
    """Check every name against the manifest's checked paths before it is used as a path."""
    expected = manifest.listed.keys() | {MANIFEST} | (entries.keys() & {SIGNATURE})
    for name in sorted(entries.keys() ^ expected):
        fact = "is not listed in the manifest" if name in entries else "is missing"
        raise ArtifactError(place, f"entry {name!r} {fact}", _AGAIN)
    for name, listed in manifest.listed.items():
        if entries[name].file_size != listed.bytes:
            raise ArtifactError(place, f"entry {name!r} has not the size that was sealed", _AGAIN)


def _check_layout(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise an error for bytes before, between or after entries: all hashed bytes are unpacked."""
    if archive.fp is None:
        raise ArtifactError(str(path), "was closed", _AGAIN)
    end = 0
    for entry in sorted(archive.infolist(), key=lambda each: each.header_offset):
        if entry.header_offset != end:
            raise ArtifactError(str(path), f"has bytes outside any entry at offset {end:,}", _AGAIN)
        archive.fp.seek(end + _NAME_LENGTHS)
        name, extra = struct.unpack("<HH", archive.fp.read(4))
        end += _LOCAL_HEADER + name + extra + entry.file_size
    archive.fp.seek(-_END_RECORD, os.SEEK_END)
    last: bytes = archive.fp.read(_END_RECORD)
    if end != archive.start_dir or not last.startswith(b"PK\5\6") or last[-2:] != b"\0\0":
        raise ArtifactError(str(path), "has bytes after its entries", _AGAIN)


def _extract_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as reader, path.open("xb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK)
        writer.flush()
        os.fsync(writer.fileno())
