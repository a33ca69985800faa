"""`zoo release diff` over a store's releases and over folders, as a person types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import make_bundle

from flows.cli import invoke
from tasks.publish import worse_than_latest
from zoo.report.comparison import RegressionLimits
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter

if TYPE_CHECKING:
    from zoo.store import Store


@pytest.fixture
def store(tmp_path: Path, signed_store: Store) -> Store:
    """Two promoted releases of a model; the second has the larger library."""
    promoter = Promoter(signed_store, Keyring(tmp_path / "keys"))
    for digits, size in (("ab", 1000), ("cd", 3000)):
        files = {"programs/main/model.so": bytes(size)}
        folder = make_bundle(tmp_path / digits, files, build_key=digits * 32)
        promoter.promote(signed_store.propose(folder))
    return signed_store


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[str, str]]:
    """What the command says of each thing that differs: before and after."""
    assert invoke(["diff", *arguments, "--json"]) == 0
    return {d["what"]: (d["before"], d["after"]) for d in json.loads(capsys.readouterr().out)}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "which", [("tiny",), ("tiny@1", "tiny@2"), ("tiny@ab", "tiny@cd"), ("tiny@1", "tiny@latest")]
)
def test_the_library_grew(capsys: pytest.CaptureFixture[str], which: tuple[str, ...]) -> None:
    """By rank, by the beginning of a build key, and by default the latest with the one before."""
    found = rows(capsys, *which)
    assert found["programs.main.library"] == ("1.00 kB", "3.00 kB")
    assert found["build"] == ("ab" * 6, "cd" * 6)
    assert "licence" not in found  # equal


@pytest.mark.usefixtures("store")
def test_an_unknown_release_is_answered_with_where_to_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A rank beyond the history is misuse, and says what lists it."""
    assert invoke(["diff", "tiny@3", "tiny"]) == 2
    assert "zoo release list tiny" in capsys.readouterr().err


def test_the_first_release_has_none_before_it(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing to compare with: say so rather than compare it with itself."""
    promoter = Promoter(store, Keyring(tmp_path / "keys"))
    promoter.promote(store.propose(make_bundle(tmp_path / "one", model="lone")))
    assert invoke(["diff", "lone"]) == 2
    assert "no release for cpu-linux-x86_64 before its latest" in capsys.readouterr().err


def test_a_candidate_is_measured_by_the_latest(tmp_path: Path, store: Store) -> None:
    """Three times the bytes of the latest is a regression; the latest itself is not."""
    files = {"programs/main/model.so": bytes(30_000)}
    folder = make_bundle(tmp_path / "ef", files, build_key="ef" * 32)
    candidate = store.propose(folder)
    [found] = worse_than_latest(store, candidate, RegressionLimits())
    assert found.what == "size"
    assert worse_than_latest(store, candidate, RegressionLimits(larger=20.0)) == ()
    assert worse_than_latest(store, store.find("tiny", "cpu"), RegressionLimits()) == ()
