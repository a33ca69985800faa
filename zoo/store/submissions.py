"""Manifest folders of custom models in the store, for workers that share no folder with us.

A submission is a document, `submissions/<sha256>.json`, that lists the folder's files by path, size
and sha256; the files are among the blobs. Its name is the digest of the document, so the name
determines every byte, and a worker accepts no other bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from menagerie.durable import disk_errors, make_folders, require_space, sha256_of
from menagerie.format.bundle_manifest import FileEntry, bundle_path
from menagerie.paths import home
from menagerie.store.base import Progress, silent
from menagerie.store.layout import submission_key
from menagerie.store.pull import fetch_blob
from zoo.base_models import Frozen
from zoo.errors import HashMismatch, NotInStore, StoreError, UsageError
from zoo.store.base import ObjectStore
from zoo.store.coordination import PlainFile, publishing

_MOST_FILES = 1000
_MOST_DOCUMENT_BYTES = 2**20
_IGNORED = ("__pycache__",)


class Submission(Frozen):
    """A manifest folder: the names of its models, and its files by their relative paths."""

    models: tuple[str, ...] = Field(min_length=1)
    files: dict[Annotated[str, AfterValidator(bundle_path)], PlainFile] = Field(
        min_length=1, max_length=_MOST_FILES
    )

    @property
    def document(self) -> bytes:
        """The document's bytes, which are the same for the same content."""
        ordered = self.model_copy(update={"files": dict(sorted(self.files.items()))})
        return (ordered.model_dump_json(indent=1) + "\n").encode()

    @property
    def digest(self) -> str:
        """The document's sha256, which is the submission's name."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def size(self) -> int:
        """The size of all files, in bytes."""
        return sum(entry.bytes for entry in self.files.values())


def describe(folder: Path, models: tuple[str, ...]) -> Submission:
    """Return the content of a folder as a submission, without hidden files and compiled Python.

    Raise UsageError if it holds too many files, a link, or a name that some system does not allow.
    """
    files = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in _IGNORED)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(parent) / name
            if name.startswith("."):
                continue
            if path.is_symlink() or not path.is_file():
                raise UsageError(str(path), "is not a regular file", "Put a copy in its place")
            try:
                inside = bundle_path(path.relative_to(folder).as_posix())
            except ValueError as error:
                raise UsageError(str(path), str(error), "Rename it") from error
            files[inside] = PlainFile(sha256=sha256_of(path), bytes=path.stat().st_size)
            if len(files) > _MOST_FILES:
                advice = "Submit a folder with the manifest and what it names alone"
                raise UsageError(str(folder), f"has more than {_MOST_FILES} files", advice)
    return Submission(models=models, files=files)


def submit(
    objects: ObjectStore, folder: Path, models: tuple[str, ...], progress: Progress = silent
) -> Submission:
    """Put the folder of a valid manifest into the store; send only the files that it lacks.

    `progress` gets bytes done and bytes in total. Raise UsageError as `describe` does, StoreError
    if the store could not take the folder.
    """
    submission = describe(folder, models)
    with publishing(objects, folder, submission.files, progress):
        objects.put_small(submission_key(submission.digest), submission.document)
    return submission


def submission_folder(digest: str) -> Path:
    """Return the folder on this machine into which a submission is fetched."""
    return home() / "submissions" / digest


def allowed_here() -> Path:
    """Return the path of the file that lists submissions whose code may run here, one per line."""
    return home() / "allowed-submissions"


def is_submitted(folder: Path) -> bool:
    """Return whether a manifest's folder was fetched from a store."""
    return folder.resolve() == submission_folder(folder.name).resolve()


def advice_on_code(folder: Path) -> str:
    """Return the step that allows the code in a manifest's folder to run."""
    if not is_submitted(folder):
        return "If you trust the manifest, allow it with --allow-factories"
    line = f"sha256:{folder.name}"
    return f"After reading it, the worker's operator adds the line {line} to {allowed_here()}"


def read_submission(objects: ObjectStore, digest: str) -> Submission:
    """Return the submission with this name.

    Raise NotInStore if it is missing, HashMismatch if its document has another digest.
    """
    key = submission_key(digest)
    try:
        content = objects.read_small(key, _MOST_DOCUMENT_BYTES)
    except NotInStore:
        advice = "Put it there with `zoo submit DIR`"
        raise NotInStore(objects.url, f"no submission {digest}", advice) from None
    try:
        if hashlib.sha256(content).hexdigest() != digest:
            raise HashMismatch(f"{objects.url}/{key}", "has another digest", "Submit it again")
        return Submission.model_validate_json(content)
    except ValidationError as error:
        fact = f"is not a submission ({error.errors(include_url=False)[0]['msg']})"
        raise StoreError(f"{objects.url}/{key}", fact, "Submit the folder again") from error


def listed(objects: ObjectStore) -> list[str]:
    """Return the names of all submissions, newest first."""
    files = objects.list_files(submission_key.folder)
    files.sort(key=lambda file: file.modified, reverse=True)
    return [digest for file in files if (digest := submission_key.digest(file.key))]


def submission_of(objects: ObjectStore, models: Iterable[str]) -> str | None:
    """Return the name of the newest submission that has all these models; None if none has."""
    for digest in listed(objects):
        with suppress(HashMismatch, NotInStore):
            if set(models) <= set(read_submission(objects, digest).models):
                return digest
    return None


def fetch_submission(objects: ObjectStore, digest: str, folder: Path) -> Path:
    """Fetch a submission into `folder`, unless the folder is identical already; return `folder`.

    Raise NotInStore if the submission or one of its files is missing, HashMismatch if the store's
    bytes are not the submitted ones, StoreFull if no space is left.
    """
    submission = read_submission(objects, digest)
    with suppress(UsageError):  # a folder that cannot be described is fetched again
        ours = folder.is_dir() and not folder.is_symlink()
        if ours and describe(folder, submission.models) == submission:
            return folder
    with disk_errors(folder.parent, submission.size):
        make_folders(folder.parent)
        with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            partial = Path(scratch) / "new"
            partial.mkdir()
            require_space(partial, submission.size)
            for name, entry in submission.files.items():
                path = partial / name
                make_folders(path.parent)
                file = FileEntry(name, entry.sha256, entry.bytes)
                fetch_blob(objects, path, file, lambda _: None, "those that were submitted")
            if folder.exists():  # damaged, or left by a killed process
                folder.rename(Path(scratch) / "old")
            partial.replace(folder)
    return folder
