"""`zoo release promote` over several candidates; judging is another test's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime" / "format"))

from bundle_maker import make_bundle

import tasks.publish
from flows.cli import invoke
from flows.parameters import ConversionOptions
from flows.plan import plan
from flows.results import RunResult, results_markdown
from menagerie.host import RUNTIME_ABI
from zoo.errors import ValidationError
from zoo.signing.keyring import Keyring
from zoo.signing.promotion import Promoter

if TYPE_CHECKING:
    from zoo.store import Release, Store


@pytest.fixture
def store(signed_store: Store) -> Store:
    """Empty, with keys for it."""
    return signed_store


@pytest.fixture(autouse=True)
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge refuses builds whose key begins with 0, and signs all others."""

    def judge(
        store: Store, keyring: Keyring, candidate: Release, spec: object, **options: Any
    ) -> Release:
        if candidate.build_key.startswith("0"):
            raise ValidationError(candidate.model, "misses its tolerance", "Convert it anew")
        return Promoter(store, keyring).promote(candidate, latest=options["latest"])

    monkeypatch.setattr(tasks.publish, "promote_candidate", judge)


def propose(store: Store, folder: Path, digits: str, **changes: Any) -> None:
    """A candidate of its own bytes, under a build key of these digits."""
    files = {"programs/main/model.so": digits.encode()}
    folder = folder / f"{digits}-{len(changes)}"
    changes = {"model": "digits_cnn", **changes}
    store.propose(make_bundle(folder, files, build_key=digits * 32, **changes))


def test_one_that_fails_does_not_hold_up_the_others(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON document, a row for each; the command fails for the one that did."""
    for digits in ("0a", "ab"):
        propose(store, tmp_path, digits)
    assert invoke(["promote", "digits_cnn", "--json"]) == 1
    rows = {row["build_key"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["ab" * 32]["decision"] == "promoted"
    assert rows["0a" * 32]["decision"] == "refused"
    assert "misses its tolerance" in rows["0a" * 32]["failure"]


def test_what_does_not_become_the_latest_is_not_called_promoted(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """An emulated build never takes a validated one's place, asked or not."""
    propose(store, tmp_path, "ab")
    assert invoke(["promote", "digits_cnn"]) == 0
    propose(store, tmp_path, "cd", state="emulated")
    capsys.readouterr()
    assert invoke(["promote", "digits_cnn"]) == 0
    assert "cdcdcdcdcdcd admitted" in capsys.readouterr().out


def test_a_build_is_found_among_those_of_two_platforms(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the beginning of its key, whichever machine it is for."""
    for digits, machine in (("ab", "x86_64"), ("cd", "aarch64")):
        requires = {"system": "linux", "machine": machine, "runtime_abi": RUNTIME_ABI}
        propose(store, tmp_path, digits, requires=requires)
    assert invoke(["promote", "digits_cnn"]) == 0
    capsys.readouterr()
    assert invoke(["promote", "digits_cnn", "--build", "cd", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["platform"] == "cpu-linux-arm64"


def test_nothing_to_promote_is_an_empty_list(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is signed already stays as it is."""
    propose(store, tmp_path, "ab")
    assert invoke(["promote", "digits_cnn"]) == 0
    capsys.readouterr()
    assert invoke(["promote", "digits_cnn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_beginning_of_two_build_keys_promotes_neither(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is misuse: a user who named one build did not mean two."""
    for digits in ("ab", "ac"):
        propose(store, tmp_path, digits)
    assert invoke(["promote", "digits_cnn", "--build", "a"]) == 2
    assert "begins 2 of its build keys" in capsys.readouterr().err
    assert store.ledgers("digits_cnn") == []


def test_a_retraction_says_what_is_the_latest_now(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a rollback it is not the one before in time; at last there is none."""
    for digits in ("ab", "cd", "ef"):
        propose(store, tmp_path, digits)
        assert invoke(["promote", "digits_cnn"]) == 0
    assert invoke(["rollback", "digits_cnn"]) == 0
    assert "the latest is cdcdcdcdcdcd again" in capsys.readouterr().out
    for build, said in (
        ("ef", "the latest is cdcdcdcdcdcd"),
        ("cd", "the latest is abababababab"),
        ("ab", "it has no latest release now"),
    ):
        assert invoke(["retract", "digits_cnn", build, "--reason", "wrong"]) == 0
        assert f"retracted, {said}" in capsys.readouterr().out


def test_a_rollback_to_the_latest_writes_nothing(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the latest already: the history has no entry that decides nothing."""
    propose(store, tmp_path, "ab")
    assert invoke(["promote", "digits_cnn"]) == 0
    before = store.ledgers("digits_cnn")
    capsys.readouterr()
    assert invoke(["rollback", "digits_cnn", "--to", "ab"]) == 0
    assert "the latest is abababababab already" in capsys.readouterr().out
    assert store.ledgers("digits_cnn") == before


def test_what_was_retracted_is_shown_as_such(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two releases the one, in the table and in JSON; the other keeps its state."""
    for digits in ("ab", "cd"):
        propose(store, tmp_path, digits)
        assert invoke(["promote", "digits_cnn"]) == 0
    assert invoke(["retract", "digits_cnn", "ab", "--reason", "wrong"]) == 0
    capsys.readouterr()
    assert invoke(["show", "digits_cnn", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["releases"]
    assert {each["build_key"][:2]: each["retracted"] for each in shown} == {"ab": True, "cd": False}
    assert invoke(["show", "digits_cnn"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "retracted" in line]
    assert [row.split()[-1][:2] for row in rows] == ["ab"]


def test_a_skipped_row_says_that_its_release_was_retracted(
    tmp_path: Path, store: Store, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason and what helps, on the terminal, in JSON and on the run's page."""
    options = ConversionOptions(random_weights=0, manifest=str(manifest), store=store.url)
    for planned in plan(["ant", "bee"], ["cpu"], options):
        made = make_bundle(
            tmp_path / planned.model, model=planned.model, build_key=planned.build_key
        )
        Promoter(store, Keyring(tmp_path / "keys")).promote(store.propose(made))
    key = plan(["ant"], ["cpu"], options)[0].build_key
    assert invoke(["retract", "ant", key[:8], "--reason", "wrong labels"]) == 0
    asked = ["convert", "ant", "bee", "--manifest", str(manifest), "--random-weights", "0"]
    capsys.readouterr()
    assert invoke([*asked, "--json"]) == 0
    result = RunResult.model_validate_json(capsys.readouterr().out)
    ant, bee = result.results
    assert ant.retracted is not None
    assert ant.retracted.endswith(": wrong labels")
    assert (ant.candidate, bee.retracted, bee.remark) == (False, None, "")
    assert invoke(asked) == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in (out, results_markdown(result.results).replace("\\", "")):
        assert text.count("skipped, retracted") == 1
        assert "wrong labels. Fix its cause and convert it: that is another build" in text


def test_what_is_no_ledger_ends_no_plan(tmp_path: Path, store: Store, manifest: Path) -> None:
    """Brackets deeper than a parser goes, in a ledger's place: the row is as that of others."""
    options = ConversionOptions(random_weights=0, manifest=str(manifest), store=store.url)
    [planned] = plan(["ant"], ["cpu"], options)
    made = make_bundle(tmp_path / "ant", model="ant", build_key=planned.build_key)
    Promoter(store, Keyring(tmp_path / "keys")).promote(store.propose(made))
    [ledger] = (tmp_path / "store" / "ledgers").rglob("*.json")
    ledger.write_text('{"payload": ' + "[" * 100_000)
    [row] = plan(["ant"], ["cpu"], options)
    assert row.stored is not None
    assert row.stored.retracted is None


def test_an_old_ledger_hides_no_retraction(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mirror with yesterday's state is no proof that nothing was retracted since."""
    for digits in ("ab", "cd"):
        propose(store, tmp_path, digits)
        assert invoke(["promote", "digits_cnn"]) == 0
    [file] = (tmp_path / "store").rglob("ledgers/**/*.json")
    before = file.read_bytes()
    assert invoke(["retract", "digits_cnn", "ab", "--reason", "wrong"]) == 0
    file.write_bytes(before)
    capsys.readouterr()
    assert invoke(["show", "digits_cnn", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["releases"]
    assert {each["retracted"] for each in shown} == {None}
    assert invoke(["show", "digits_cnn"]) == 0
    assert capsys.readouterr().out.count("its ledger is not trusted") == len(shown)


def test_without_a_latest_release_what_is_left_is_named(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a rollback and a retraction there is none; every command says how to have one."""
    for digits in ("ab", "cd"):
        propose(store, tmp_path, digits)
        assert invoke(["promote", "digits_cnn"]) == 0
    assert invoke(["rollback", "digits_cnn"]) == 0
    capsys.readouterr()
    assert invoke(["retract", "digits_cnn", "ab", "--reason", "wrong"]) == 0
    again = "zoo release rollback digits_cnn --target cpu --to"
    assert f"{again} cdcdcdcdcdcd" in " ".join(capsys.readouterr().out.split())
    assert invoke(["pull", "digits_cnn", "-o", str(tmp_path / "out")]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "digits_cnn has no latest release for cpu-linux-" in said
    assert f"--build KEY (cdcdcdcdcdcd), or make one the latest: `{again} KEY`" in said
    assert invoke(["rollback", "digits_cnn", "--to", "ab"]) == 2
    assert "was retracted on" in " ".join(capsys.readouterr().err.split())
    assert invoke(["rollback", "digits_cnn", "--to", "cd"]) == 0


def test_a_model_without_a_latest_release_ends_no_verification(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are verified; what was retracted is passed over."""
    propose(store, tmp_path, "ab", model="resnet18")
    propose(store, tmp_path, "cd")
    for model in ("resnet18", "digits_cnn"):
        assert invoke(["promote", model]) == 0
    assert invoke(["retract", "resnet18", "ab", "--reason", "wrong"]) == 0
    capsys.readouterr()
    invoke(["release", "verify", "--json"])
    assert [row["model"] for row in json.loads(capsys.readouterr().out)["proofs"]] == ["digits_cnn"]


@pytest.mark.parametrize("command", ["list", "diff", "rollback", "promote"])
def test_a_model_of_a_custom_manifest_is_not_published_yet(
    store: Store, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Menagerie's own entries lack it, and none has a similar name: it may exist all the same."""
    Path(store.url.removeprefix("file://")).mkdir(exist_ok=True)
    assert invoke(["release", command, "ownnet"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "zoo convert" in said
    assert "no such model" not in said


@pytest.mark.parametrize("model", ["ownnet", "resnet81"])
def test_nothing_waits_of_a_model_that_the_manifest_lacks(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """A signed latest release is reported without an entry, whatever has a similar name."""
    propose(store, tmp_path, "ab", model=model)
    [candidate] = store.candidates(model)
    Promoter(store, Keyring(tmp_path / "keys")).promote(candidate)
    assert invoke(["release", "promote", model]) == 0
    said = f"{model} for cpu: nothing waits; the latest is abababababab"
    assert said in " ".join(capsys.readouterr().out.split())
    assert invoke(["release", "rollback", model, "--target", "metal"]) == 1
    assert "no such model" not in capsys.readouterr().err


def test_what_was_never_published_is_to_be_converted_first(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a similar name nor a promotion is advised while there is nothing to promote."""
    Path(store.url.removeprefix("file://")).mkdir(exist_ok=True)
    for command, said in (("list", "`zoo convert digits_cnn`"), ("diff", "zoo convert digits_cnn")):
        assert invoke(["release", command, "digits_cnn"]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    propose(store, tmp_path, "ab")
    assert invoke(["release", "diff", "digits_cnn"]) == 1
    assert "zoo release promote digits_cnn" in " ".join(capsys.readouterr().err.split())
