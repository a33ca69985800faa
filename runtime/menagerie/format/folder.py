"""Sealing a folder into a bundle, and opening one: the rules of FORMAT.md."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.durable import disk_errors, sha256_of, sync, write_durably
from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import BundleManifest, FileEntry
from menagerie.format.document import MAX_MANIFEST_BYTES, manifest_document, parse_manifest
from menagerie.format.paths import MANIFEST, PARTIAL, SIGNATURE, bundle_path

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MAX_FILES",
    "Bundle",
    "check_references",
    "open_bundle",
    "read_manifest",
    "read_signature",
    "seal",
]

MAX_FILES = 10_000
_MOST_SIGNATURE_BYTES = 2**17  # whoever reads it refuses half as many

_AGAIN = "The bundle is damaged: pull or convert it again"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle whose rules hold.

    Attributes:
        folder: where its files lie.
        manifest: what manifest.json says.
        document: manifest.json, byte for byte.
        signature: signature.json, byte for byte, unchecked; None where nobody has signed.
    """

    folder: Path
    manifest: BundleManifest
    document: bytes
    signature: bytes | None = None

    def file(self, name: str) -> Path:
        """The path of a file that the manifest lists.

        Raises:
            ArtifactError: the manifest does not list it.
        """
        if name not in self.manifest.files:
            raise ArtifactError(f"{self.folder}/{name}", "the manifest does not list this file")
        return self.folder / name


def seal(folder: Path, draft: BundleManifest) -> BundleManifest:
    """Makes `folder` a bundle: hashes every file in it and writes manifest.json last.

    A folder may be sealed again after files were added or changed; until then it does not open.

    Args:
        folder: holds every file of the bundle, and nothing else.
        draft: the manifest but for `files`, which is filled in here whatever it holds.

    Raises:
        ArtifactError: a file breaks the format, or the draft names one that is not there.
        StoreFull: no space for the manifest.
    """
    found = dict(_scan(folder))
    with disk_errors(folder):
        files = {
            name: FileEntry(sha256=sha256_of(found[name]), bytes=found[name].stat().st_size)
            for name in sorted(found)
        }
        document = manifest_document(replace(draft, files=files))
        place = str(folder / MANIFEST)
        manifest = parse_manifest(document, place)
        check_references(manifest, place)
        for path in found.values():
            sync(path)
        for parent in sorted({path.parent for path in found.values()}, reverse=True):
            sync(parent)
        (folder / SIGNATURE).unlink(missing_ok=True)  # it was over another manifest
        write_durably(folder / MANIFEST, document, partial=folder / PARTIAL)
    return manifest


def open_bundle(path: Path, *, check_hashes: bool = True) -> Bundle:
    """Opens a bundle folder after checking every rule of the format.

    Args:
        path: the folder.
        check_hashes: also read every file and compare its sha256; sizes are always compared.

    Raises:
        ArtifactError: a rule is broken; nothing of the bundle was used.
    """
    if not path.is_dir():
        fact = "is a file, not a bundle folder" if path.exists() else "there is no such folder"
        raise ArtifactError(str(path), fact, "Name a folder that `zoo pull` or `zoo convert` made")
    document = read_manifest(path / MANIFEST)
    place = str(path / MANIFEST)
    manifest = parse_manifest(document, place)
    check_references(manifest, place)
    found = dict(_scan(path))
    for name in sorted(manifest.files.keys() - found.keys()):
        raise ArtifactError(str(path / name), "the manifest lists it, but it is missing", _AGAIN)
    if (path / PARTIAL).exists():
        raise ArtifactError(str(path / PARTIAL), "sealing was interrupted", "Convert it again")
    for name in sorted(found):
        _check_file(found[name], manifest.files.get(name), check_hash=check_hashes)
    return Bundle(path, manifest, document, read_signature(path))


def check_references(manifest: BundleManifest, place: str) -> None:
    """Raises ArtifactError unless every file that the manifest speaks of is listed, once."""
    for name, use in _referenced(manifest).items():
        if name not in manifest.files:
            raise ArtifactError(place, f"{use}: {name!r} is not among its files", _AGAIN)
    if len(manifest.files) > MAX_FILES:
        raise ArtifactError(place, f"lists more than {MAX_FILES:,} files", _AGAIN)
    lowered: dict[str, str] = {}
    for name in manifest.files:
        if (other := lowered.setdefault(name.lower(), name)) != name:
            raise ArtifactError(place, f"{other!r} and {name!r} differ only in case", _AGAIN)


def _referenced(manifest: BundleManifest) -> dict[str, str]:
    """Every file that the manifest speaks of, and where it does."""
    wanted = {manifest.weights: "weights"}
    for program in manifest.programs:
        wanted[program.library] = f"programs.{program.name}.library"
        wanted[program.golden] = f"programs.{program.name}.golden"
        if program.shaders is not None:
            wanted[program.shaders] = f"programs.{program.name}.shaders"
        if program.emulation is not None:
            wanted[program.emulation.library] = f"programs.{program.name}.emulation.library"
    if manifest.shader_header is not None:
        wanted[manifest.shader_header] = "shader_header"
    if manifest.accuracy is not None:
        wanted[manifest.accuracy.file] = "accuracy.file"
    return wanted


def read_manifest(path: Path) -> bytes:
    """The bytes of a manifest.json, one more at most than any may have.

    Raises:
        ArtifactError: it is missing or no regular file.
    """
    try:
        status = path.lstat()
    except OSError:
        raise ArtifactError(
            str(path), "is missing, so this is not a bundle", "Pull or convert it again"
        ) from None
    _check_regular(path, status.st_mode)
    with disk_errors(path), path.open("rb") as file:
        return file.read(MAX_MANIFEST_BYTES + 1)


def read_signature(folder: Path) -> bytes | None:
    """The bytes of a bundle's signature.json, a few too many at most; None where there is none.

    Raises:
        ArtifactError: it is no regular file.
    """
    path = folder / SIGNATURE
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    _check_regular(path, mode)
    with disk_errors(path), path.open("rb") as file:
        return file.read(_MOST_SIGNATURE_BYTES)


def _scan(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file under `folder` but the manifest, by its path in the bundle."""
    for parent, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            if relative in (MANIFEST, PARTIAL, SIGNATURE):
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
