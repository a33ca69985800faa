"""Releases that are made again: whose turn it is, what is found, and what is reported."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from toy_zoo import ToyModel, make_bundle

from flows.cli import invoke
from flows.parameters import ConversionOptions
from flows.plan import plan
from flows.proofs import turn_of_the_day
from flows.services import Services, use_services
from flows.upkeep import rebuild_release
from tasks.verify import Rebuild, RebuildOutcome
from transforms.stages import Stage
from zoo.errors import LoweringError
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zoo.store import Release, Store

LIBRARY = "programs/main/model.so"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of this test's."""
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def toys() -> Iterator[None]:
    """Conversions give the words that `make_bundle` writes."""
    with use_services(Services(hold=ToyModel)):
        yield


def publish(
    store: Store, folder: Path, model: str = "digits_cnn", key: str = "", library: str = ""
) -> Release:
    """A release of `model`, of the very key that it would have today unless one is given."""
    [planned] = plan([model], ["cpu"], ConversionOptions(store=store.url))
    files = {LIBRARY: library.encode()} if library else None
    bundle = make_bundle(
        folder / (model + key[:1]),
        files,
        model=model,
        build_key=key or planned.build_key,
        random_weights=planned.seed,
        versions={"torch": "2.13.0"},
    )
    return store.admit(store.propose(bundle), None)


def rebuilt(store: Store) -> Rebuild | None:
    """The result of a run, whose state must say whether all was equal."""
    state = rebuild_release(store=store.url, return_state=True)
    outcome = state.result(raise_on_failure=False)
    result: Rebuild | None = getattr(outcome, "result", outcome)
    assert state.is_completed() == (result is None or result.outcome is RebuildOutcome.IDENTICAL)
    return result


@pytest.mark.usefixtures("prefect_server", "toys")
def test_what_comes_out_the_same_is_identical(store: Store, tmp_path: Path, own_home: Path) -> None:
    """Nothing is published, nothing stays behind."""
    release = publish(store, tmp_path)
    before = sorted((tmp_path / "store").rglob("*"))
    found = rebuilt(store)
    assert found is not None
    assert (found.outcome, found.differences) == (RebuildOutcome.IDENTICAL, ())
    assert (found.build_key, found.files) == (release.build_key, 4)
    assert sorted((tmp_path / "store").rglob("*")) == before
    assert list((own_home / "work").iterdir()) == []


@pytest.mark.usefixtures("prefect_server", "toys")
def test_a_release_that_its_source_does_not_give_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed and published under the right key, its library is another: its file is named."""
    publish(store, tmp_path, library="the lIbrary, and a back door")
    found = rebuilt(store)
    assert found is not None
    assert found.outcome is RebuildOutcome.DIFFERENT
    assert [d.place for d in found.differences] == [LIBRARY]


@pytest.mark.usefixtures("prefect_server", "toys")
def test_a_file_that_was_changed_in_the_store_is_named(store: Store, tmp_path: Path) -> None:
    """Before anything is converted: what is compared is what was published."""
    release = publish(store, tmp_path)
    [blob] = (tmp_path / "store" / "blobs").rglob(release.manifest.weights.sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"THE WEIGHTS")
    found = rebuilt(store)
    assert found is not None
    assert found.outcome is RebuildOutcome.DAMAGED
    assert release.manifest.weights.sha256 in found.detail


@pytest.mark.usefixtures("prefect_server", "own_home")
def test_what_cannot_be_made_again_is_undecided(store: Store, tmp_path: Path) -> None:
    """The reason is the stage's own."""
    publish(store, tmp_path)
    faults = {Stage.LOWER: LoweringError("g++", "failed: no", "Look")}
    with use_services(Services(hold=lambda job: ToyModel(job, faults))):
        found = rebuilt(store)
    assert found is not None
    assert (found.outcome, found.detail) == (RebuildOutcome.UNDECIDED, "g++: failed: no. Look")


@pytest.mark.usefixtures("prefect_server", "toys", "own_home")
def test_what_other_code_made_has_no_turn(store: Store, tmp_path: Path) -> None:
    """A build key of another code, and a model that left the manifest: passed over."""
    publish(store, tmp_path, key="f" * 64)
    store.admit(store.propose(make_bundle(tmp_path / "gone", model="gone")), None)
    assert rebuilt(store) is None


@pytest.mark.usefixtures("own_home")
def test_each_has_its_turn(store: Store, tmp_path: Path) -> None:
    """Two releases, two days; a filter leaves only what it names."""
    names = {"digits_cnn", "spoken_digits"}
    for name in names:
        publish(store, tmp_path, name)
    turns = [turn_of_the_day(store, [], [], day) for day in range(len(names))]
    assert {turn.model for turn in turns if turn is not None} == names
    only = [turn_of_the_day(store, ["digits_cnn"], ["cpu"], day) for day in range(3)]
    assert {turn.model for turn in only if turn is not None} == {"digits_cnn"}
    assert turn_of_the_day(store, [], ["metal"], 0) is None


@pytest.mark.usefixtures("toys")
def test_a_submitted_model_is_rebuilt_from_its_submission(
    store: Store, manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its folder is gone; without the submission the reason is one line, and no traceback."""
    given = ConversionOptions(store=store.url, manifest=str(manifest), random_weights=0)
    [planned] = plan(["ant"], ["cpu"], given)
    bundle = make_bundle(
        tmp_path / "ant",
        model="ant",
        build_key=planned.build_key,
        random_weights=0,
        versions={"torch": "2.13.0"},
    )
    store.admit(store.propose(bundle), None)
    command = ["release", "rebuild", "ant", "--store", store.url]
    assert invoke(command) == 1
    said = "".join(capfd.readouterr())
    assert "undecided: " in said
    assert "Traceback" not in said
    assert invoke(["submit", str(manifest), "--store", store.url]) == 0
    shutil.rmtree(manifest)
    assert invoke(command) == 0
    assert "identical: 4 files" in capfd.readouterr().out


@pytest.mark.usefixtures("toys", "own_home")
def test_the_command_says_what_differs(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 and one line, or 1 and a table; of another code's release, what to do."""
    publish(store, tmp_path)
    assert invoke(["rebuild", "digits_cnn", "--store", store.url]) == 0
    assert "identical: 4 files" in capsys.readouterr().out
    tampered = open_store(str(tmp_path / "tampered"))
    publish(tampered, tmp_path / "2", library="the library.")
    assert invoke(["rebuild", "digits_cnn", "--store", tampered.url, "--json"]) == 1
    [difference] = json.loads(capsys.readouterr().out)["differences"]
    assert difference == {
        "place": LIBRARY,
        "fact": "12 bytes are published, 11 came now; equal as far as both go",
        "rounding": False,
    }
    publish(tampered, tmp_path / "3", key="f" * 64)
    assert invoke(["rebuild", "digits_cnn", "--build", "f" * 64, "--store", tampered.url]) == 1
    assert "made of another code" in capsys.readouterr().out
