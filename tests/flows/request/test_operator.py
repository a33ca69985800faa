"""Foreign code runs only where the machine's operator wants it, whatever a form says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from flows.cli import invoke
from flows.parameters import factories_allowed
from zoo.errors import SourceRefused
from zoo.manifest import load_manifest
from zoo.sources import load
from zoo.store import open_store
from zoo.store.submissions import fetch_submission, submission_folder

_OUTSIDE = """version: 1
family: "{number}"
models:
  net{number}:
    summary: A network
    source:
      kind: checkpoint
      builder: zoo.models.builders.digits_cnn:digits_cnn
      path: {path}
      sha256: "0000000000000000000000000000000000000000000000000000000000000000"
      outside: true
    programs: [{{inputs: [{{name: x, shape: [1, 1, 28, 28]}}]}}]
    targets: [cpu]
    licence: {{spdx: Apache-2.0}}
"""


@pytest.mark.parametrize(
    ("asked", "variable", "allowed"),
    [
        (False, None, False),
        (False, "1", False),
        (True, None, False),
        (True, "", False),
        (True, "0", False),
        (True, "yes", False),
        (True, "1", True),
    ],
)
def test_both_must_want_it(
    asked: bool, variable: str | None, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's parameters and the environment; anything but 1 is a no."""
    monkeypatch.delenv("MENAGERIE_ALLOW_FACTORIES", raising=False)
    if variable is not None:
        monkeypatch.setenv("MENAGERIE_ALLOW_FACTORIES", variable)
    with disable_run_logger():
        assert factories_allowed("", asked=asked) is allowed


@pytest.mark.parametrize(
    ("listed", "allowed"),
    [
        ("", False),
        ("*", True),
        ("a" * 64, True),
        (f"{'b' * 64}, sha256:{'a' * 64}", True),
        ("b" * 64, False),
        ("a" * 63, False),
        ("1", False),
    ],
)
def test_submitted_code_runs_where_its_digest_is_listed(
    listed: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option, since the run names it; a folder is no submission."""
    monkeypatch.delenv("MENAGERIE_ALLOW_FACTORIES", raising=False)
    monkeypatch.setenv("MENAGERIE_ALLOW_SUBMITTED", listed)
    with disable_run_logger():
        assert factories_allowed(f"sha256:{'a' * 64}", asked=False) is allowed
        assert factories_allowed("/a/folder", asked=True) is False
        assert factories_allowed("", asked=True) is False


def test_a_submitted_manifest_learns_nothing_of_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path outside is refused whether the file is there or not; its digest is not reported."""
    folder, secret = tmp_path / "mine", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("of the worker")
    for number, path in enumerate((secret, tmp_path / "absent")):
        (folder / f"{number}.yaml").write_text(_OUTSIDE.format(number=number, path=path))
    store = ["--store", str(tmp_path / "store"), "--json"]
    assert invoke(["submit", str(folder), *store]) == 0
    place = submission_folder(json.loads(capsys.readouterr().out)["manifest"][len("sha256:") :])
    fetch_submission(open_store(str(tmp_path / "store")).objects, place.name, place)
    for name, spec in load_manifest(place).models.items():
        fact = "leads out of the manifest's folder, which was submitted"
        with pytest.raises(SourceRefused, match=fact) as refused:
            load(name, spec, origin=place / "0.yaml", random_weights=None, allow_factories=False)
        assert hashlib.sha256(secret.read_bytes()).hexdigest() not in str(refused.value)


def test_submitted_code_is_refused_with_what_allows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal names digest and file; a line there, as `--allow` writes it, takes effect."""
    folder, store = tmp_path / "mine", ["--store", str(tmp_path / "store"), "--json"]
    assert invoke(["new", "submitted_net", "--manifest", str(folder)]) == 0
    capsys.readouterr()
    assert invoke(["submit", str(folder), *store]) == 0
    name = json.loads(capsys.readouterr().out)["manifest"]
    place = submission_folder(name.removeprefix("sha256:"))
    objects = open_store(str(tmp_path / "store")).objects
    fetch_submission(objects, place.name, place)
    entry = load_manifest(place)

    def build() -> None:
        spec, origin = entry.spec("submitted_net"), entry.origins["submitted_net"].file
        allowed = factories_allowed(name, asked=False)
        load("submitted_net", spec, origin=origin, random_weights=None, allow_factories=allowed)

    with pytest.raises(SourceRefused) as refused:
        build()
    line, _, file = refused.value.next_step.rpartition("the line ")[2].partition(" to ")
    assert line == name
    assert "--allow-factories" not in str(refused.value)
    assert invoke(["submit", str(folder), "--allow", *store]) == 0
    assert Path(file).read_text() == f"{name}\n"
    build()
