"""Bundles as folders: sealing and opening by the rules of FORMAT.md."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from menagerie.durable import disk_errors, sha256_of, sync, write_durably
from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    MODEL_SIGNATURE,
    PARTIAL,
    SIGNATURE,
    BundleManifest,
    FileEntry,
    bundle_path,
    manifest_document,
    parse_manifest,
    unsealed,
)

_MOST_SIGNATURE_BYTES = 2**17  # a reader refuses more than half of this

_LEFT_OUT = "was left out when the bundle was pulled"
_AGAIN = "The bundle is damaged: pull or convert it again"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle that obeys the rules of the format."""

    folder: Path
    manifest: BundleManifest
    document: bytes  # manifest.json, byte for byte
    signature: bytes | None = None  # signature.json, unverified; None if it is unsigned

    def file(self, name: str) -> Path:
        """Return the path of a file; raise ArtifactError if it is not listed or was omitted."""
        path = self.folder / name
        if name not in self.manifest.listed:
            raise ArtifactError(str(path), "the manifest does not list this file")
        if name in self.manifest.of_proofs and not path.exists():
            raise ArtifactError(str(path), _LEFT_OUT, "Pull it without --no-goldens to prove it")
        return path

    def require_whole(self) -> None:
        """Raise ArtifactError if files were omitted."""
        for name in self.manifest.listed:
            self.file(name)


def seal(folder: Path, draft: BundleManifest) -> BundleManifest:
    """Make `folder` a bundle: hash every file in it and write manifest.json last.

    A folder may be sealed again after files were added or changed; until then it cannot be opened.
    It must hold every file of the bundle, and nothing else. The draft's sizes and digests are
    ignored; a file that the draft does not name gets its role from its path. Raise ArtifactError if
    a file breaks the format, or a file that the draft names is missing.
    """
    found = dict(_scan(folder))
    with disk_errors(folder):
        entries = {
            name: replace(
                draft.listed.get(name) or unsealed(name),
                sha256=sha256_of(found[name]),
                bytes=found[name].stat().st_size,
            )
            for name in sorted(found)
        }
        place = str(folder / MANIFEST)
        document = manifest_document(_filled(draft, entries, place))
        manifest = parse_manifest(document, place)
        for path in found.values():
            sync(path)
        for parent in sorted({path.parent for path in found.values()}, reverse=True):
            sync(parent)
        (folder / SIGNATURE).unlink(missing_ok=True)  # it signed another manifest
        write_durably(folder / MANIFEST, document, partial=folder / PARTIAL)
    return manifest


def open_bundle(path: Path, *, check_hashes: bool = True) -> Bundle:
    """Open a bundle folder after checking every rule of the format.

    Sizes are always compared, sha256 digests only with `check_hashes`. Raise ArtifactError if a
    rule is broken, before any file is used. Files that only a proof reads may be missing.
    """
    if not path.is_dir():
        fact = "is a file, not a bundle folder" if path.exists() else "there is no such folder"
        raise ArtifactError(str(path), fact, "Name a folder that `zoo pull` or `zoo convert` made")
    document = read_manifest(path / MANIFEST)
    place = str(path / MANIFEST)
    manifest = parse_manifest(document, place)
    found = dict(_scan(path))
    for name in sorted(manifest.listed.keys() - found.keys() - manifest.of_proofs):
        raise ArtifactError(str(path / name), "the manifest lists it, but it is missing", _AGAIN)
    if os.path.lexists(path / PARTIAL):
        raise ArtifactError(str(path / PARTIAL), "sealing was interrupted", "Convert it again")
    for name in sorted(found):
        _check_file(found[name], manifest.listed.get(name), check_hash=check_hashes)
    return Bundle(path, manifest, document, read_signature(path))


def _filled(draft: BundleManifest, entries: Mapping[str, FileEntry], place: str) -> BundleManifest:
    """Return the draft with each file's size and digest, and with a role for each unnamed file."""
    for use, entry in draft.uses():
        if entry.path not in entries:
            raise ArtifactError(place, f"{use}: {entry.path!r} is not among its files", _AGAIN)

    def sealed(files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
        return {role: entries[entry.path] for role, entry in files.items()}

    roles = sealed(draft.files)
    for path in sorted(entries.keys() - draft.listed.keys()):
        roles[role_of(path, roles)] = entries[path]
    programs = tuple(replace(p, files=sealed(p.files)) for p in draft.programs)
    return replace(draft, files=roles, programs=programs)


def role_of(path: str, taken: Container[str]) -> str:
    """Return a role outside `taken` for a file without one: `report_html` for `report.html`."""
    role = re.sub(r"[^a-z0-9_]", "_", path.lower())
    role = role if role[0].isalpha() else f"file_{role}"
    return role if role not in taken else f"file_{sha256(path.encode()).hexdigest()}"


def read_manifest(path: Path) -> bytes:
    """Read manifest.json up to a byte beyond its limit; raise ArtifactError if no regular file."""
    content = _beginning(path, MAX_MANIFEST_BYTES + 1)
    if content is None:
        fact = "is missing, so this is not a bundle"
        raise ArtifactError(str(path), fact, "Pull or convert it again")
    return content


def read_signature(folder: Path) -> bytes | None:
    """Read signature.json, if it exists; raise ArtifactError if it is not a regular file."""
    return _beginning(folder / SIGNATURE, _MOST_SIGNATURE_BYTES)


def _beginning(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a regular file; None if it does not exist."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    _check_regular(path, mode)
    with disk_errors(path), path.open("rb") as file:
        return file.read(most)


def _scan(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the bundle path and the location of every file under `folder`, except the manifest."""
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            if relative in (MANIFEST, PARTIAL, SIGNATURE, MODEL_SIGNATURE):
                continue
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            _check_regular(path, mode)
            try:
                yield bundle_path(relative), path
            except ValueError as error:
                raise ArtifactError(str(path), str(error), "Rename or remove it") from None


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
        raise ArtifactError(str(path), f"is {kind}", "A bundle holds plain files only")


def _check_file(path: Path, entry: FileEntry | None, *, check_hash: bool) -> None:
    place = str(path)
    if entry is None:
        raise ArtifactError(place, "the manifest does not list this file", "Remove it")
    size = path.stat().st_size
    if size != entry.bytes:
        raise ArtifactError(place, f"{size:,} bytes, but {entry.bytes:,} were sealed", _AGAIN)
    if check_hash and sha256_of(path) != entry.sha256:
        raise ArtifactError(place, "its sha256 is not the one that was sealed", _AGAIN)
