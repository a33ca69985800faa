"""Manifest folders in a store arrive as they were submitted, or not at all."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from menagerie.store.layout import blob_key, submission_key
from zoo.errors import HashMismatch, MenagerieError, NotInStore, UsageError
from zoo.store import KeepRule
from zoo.store.garbage_collection import sweep
from zoo.store.submissions import fetch_submission, submission_of, submit

if TYPE_CHECKING:
    from pathlib import Path

MODELS = ("my_net",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A manifest, a builder in a package, weights; and files that are not submitted."""
    made = tmp_path / "mine"
    for name, content in {
        "nets.yaml": b"models",
        "nets/__init__.py": b"",
        "nets/small.py": b"def make(): ...",
        "w.safetensors": b"weights" * 1000,
        ".git/config": b"[core]",
        "nets/__pycache__/small.pyc": b"compiled",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    """All files by their paths."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_folder_arrives_whole(place: Any, folder: Path, tmp_path: Path) -> None:
    """Byte for byte, under the digest of what lists it; the same content has the same name."""
    store = place.store()
    made = submit(store.objects, folder, MODELS)
    assert submit(store.objects, folder, MODELS).digest == made.digest
    got = fetch_submission(store.objects, made.digest, tmp_path / "got")
    wanted = contents(folder)
    del wanted[".git/config"], wanted["nets/__pycache__/small.pyc"]
    assert contents(got) == wanted
    assert hashlib.sha256(
        store.objects.read_small(submission_key(made.digest), 10**6)
    ).hexdigest() == (made.digest)
    (folder / "w.safetensors").write_bytes(b"other")
    assert submit(store.objects, folder, MODELS).digest != made.digest


def test_the_newest_that_has_the_models_is_found(place: Any, folder: Path) -> None:
    """All of them, in one submission."""
    store = place.store()
    digest = submit(store.objects, folder, ("a", "b")).digest
    assert submission_of(store.objects, ["a", "b"]) == digest
    assert submission_of(store.objects, ["a", "c"]) is None
    with pytest.raises(NotInStore, match="zoo submit"):
        fetch_submission(store.objects, "0" * 64, folder.with_name("none"))


def test_what_was_changed_on_the_way_is_refused(place: Any, folder: Path, tmp_path: Path) -> None:
    """Another document under the name, another file under its digest; nothing is left behind."""
    store = place.store()
    made = submit(store.objects, folder, MODELS)
    weights = made.files["w.safetensors"]
    store.objects.delete(blob_key(weights.sha256))
    store.objects.put_small(blob_key(weights.sha256), b"x" * weights.bytes)
    with pytest.raises(HashMismatch, match="not those that were submitted"):
        fetch_submission(store.objects, made.digest, tmp_path / "got")
    other = made.model_copy(update={"models": ("evil",)})
    store.objects.put_small(submission_key(made.digest), other.document)
    with pytest.raises(HashMismatch, match="another digest"):
        fetch_submission(store.objects, made.digest, tmp_path / "got")
    assert sorted(path.name for path in tmp_path.glob("*got*")) == []


def test_a_folder_that_was_changed_here_is_made_anew(
    place: Any, folder: Path, tmp_path: Path
) -> None:
    """What a run of its code left or changed does not reach the next run."""
    store = place.store()
    digest = submit(store.objects, folder, MODELS).digest
    got = fetch_submission(store.objects, digest, tmp_path / "got")
    before = contents(got)
    (got / "nets" / "small.py").write_text("import evil")
    (got / "extra.py").write_text("more")
    assert contents(fetch_submission(store.objects, digest, got)) == before


@pytest.mark.parametrize("path", ["../out.py", "/etc/x", "a/../../b", ".hidden", "a//b", ""])
def test_no_path_leads_out(place: Any, tmp_path: Path, path: str) -> None:
    """A document that names such a path is refused, whatever its author."""
    store = place.store()
    entry = {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}
    document = json.dumps({"models": ["a"], "files": {path: entry}}).encode()
    digest = hashlib.sha256(document).hexdigest()
    store.objects.put_small(submission_key(digest), document)
    store.objects.put_small(blob_key(str(entry["sha256"])), b"x")
    with pytest.raises(MenagerieError, match="is not a submission"):
        fetch_submission(store.objects, digest, tmp_path / "in" / "got")
    assert not (tmp_path / "out.py").exists()


def test_links_are_not_followed(folder: Path, place: Any) -> None:
    """Neither files nor folders: they could lead anywhere."""
    (folder / "nets" / "link").symlink_to("/etc")
    with pytest.raises(UsageError, match="is not a regular file"):
        submit(place.store().objects, folder, MODELS)


def test_a_sweep_keeps_what_is_submitted(
    place: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files stay with the newest submissions, and go with those beyond them."""
    store = place.store()
    digest = submit(store.objects, folder, MODELS).digest
    rule = KeepRule(grace_hours=0)
    assert (
        sweep(store.objects, rule, dry_run=False).blobs,
        submission_of(store.objects, MODELS),
    ) == (0, digest)
    fetch_submission(store.objects, digest, tmp_path / "got")
    swept = sweep(store.objects, rule.model_copy(update={"submissions": 0}), dry_run=False)
    assert (swept.submissions, swept.blobs, submission_of(store.objects, MODELS)) == (1, 4, None)
