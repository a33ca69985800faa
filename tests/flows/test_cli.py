"""The command line: exit codes, one-line complaints, and JSON that is nothing but JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bundle_maker import make_bundle
from pydantic import ValidationError
from toy_zoo import toy_bundle, toy_job, toy_judgement, toy_records

from flows.cli import invoke
from menagerie.cli import main as menagerie
from menagerie.paths import home
from menagerie.store.base import INCOMING
from tasks.prove import prove
from tasks.publish import publish_bundle
from zoo.store import KeepRule

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from web_server import serving

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


# At most 17 words to choose from at the top; what belongs together is in a group.
COMMANDS = {
    "": "list show new convert compile submit report pull verify run bench transcribe doctor",
    "release": "promote rollback retract list diff provenance rebuild verify catalog gc",
    "keys": "init show rotate refresh trust",
    "cluster": "up down status",
    "debug": "explain bisect schema",
}
SHORT = [
    (name, f"{group} {name}")
    for group in ("release", "cluster", "debug")
    for name in COMMANDS[group].split()
    if name not in COMMANDS[""].split()
]


@pytest.fixture
def zoo(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process: exit code, standard output, standard error."""

    def run(*arguments: object, by: Callable[[list[str]], int] = invoke) -> tuple[int, str, str]:
        capfd.readouterr()
        code = by([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that holds a release of `toy`."""
    job = toy_job(tmp_path)
    toy_bundle(job)
    prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
    publish_bundle(job)
    return Path(job.store)


def one_line(text: str) -> str:
    """The only line of `text`."""
    [line] = text.strip().splitlines()
    return line


def test_help_shows_every_command(zoo: Run) -> None:
    """All of them, grouped, and the meaning of the exit codes; each has `--json` and examples."""
    code, out, _ = zoo("--help")
    assert code == 0
    assert "Exit codes" in out
    top = [*COMMANDS[""].split(), *filter(None, COMMANDS)]
    assert len(top) <= 17
    shown = re.findall(r"^│ (\w+)\s{2,}\w", out, re.MULTILINE)
    assert shown == top
    for group, names in COMMANDS.items():
        path = [group] if group else []
        assert zoo(*path, "--help")[0] == 0
        for name in names.split():
            code, usage, _ = zoo(*path, name, "--help")
            assert code == 0
            assert "--json" in usage, name  # as README.md says
            assert re.search("example", usage, re.IGNORECASE), name
            assert zoo(*path, name, "--no-such-option")[0] == 2


@pytest.mark.parametrize(("short", "whole"), [*SHORT, ("releases", "release list")])
def test_daily_commands_have_a_short_name(zoo: Run, short: str, whole: str) -> None:
    """It is the same command; the help leaves it out."""
    _, usage, _ = zoo(*whole.split(), "--help")
    code, out, _ = zoo(short, "--help")
    assert code == 0
    assert out.splitlines()[3:] == usage.splitlines()[3:]


@pytest.mark.parametrize("name", ["pull", "verify", "run", "bench", "transcribe"])
def test_both_commands_have_the_same_options(zoo: Run, name: str) -> None:
    """The default store is all that differs."""

    def usage(text: str) -> str:
        return re.sub(r"\bzoo\b", "menagerie", re.sub(r"_STORE[^)]*", "", " ".join(text.split())))

    done = subprocess.run(
        [sys.executable, "-m", "menagerie.cli", name, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert usage(zoo(name, "--help")[1]) == usage(done.stdout)


def test_list_as_json(zoo: Run, manifest: Path) -> None:
    """Names, sources and tags; nothing else on standard output."""
    code, out, err = zoo("list", "--manifest", manifest, "--json")
    models = json.loads(out)
    assert (code, err) == (0, "")
    assert [m["name"] for m in models] == ["ant", "bee", "cat"]
    assert models[0] == {
        "name": "ant",
        "summary": "a toy",
        "source": "torchvision",
        "programs": ["main"],
        "dtype": "float32",
        "targets": ["cpu"],
        "precision": "float32",
        "licence": "Apache-2.0",
        "tags": ["default"],
    }


def test_list_by_tag(zoo: Run, manifest: Path) -> None:
    """Only the models with the tag."""
    code, out, _ = zoo("list", "--manifest", manifest, "--tag", "small")
    assert code == 0
    assert "bee" in out
    assert "ant" not in out


def test_our_own_manifest_is_listed(zoo: Run) -> None:
    """The models that come with Menagerie; five of them are the default."""
    code, out, _ = zoo("list", "--json")
    defaults = {m["name"] for m in json.loads(out) if "default" in m["tags"]}
    assert code == 0
    assert defaults == {
        "digits_cnn",
        "efficientnet_lite0",
        "resnet18",
        "silero_vad",
        "spoken_digits",
    }


def test_show(zoo: Run, manifest: Path, tmp_path: Path) -> None:
    """Entry with file and line, and no releases in an empty store."""
    place = ("--manifest", manifest, "--store", tmp_path / "store")
    code, out, _ = zoo("show", "bee", *place, "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["entry"]["source"]["builder"] == "resnet18"
    assert shown["file"].endswith("toys.yaml")
    assert shown["releases"] == []
    code, out, _ = zoo("show", "bee", *place)
    assert code == 0
    assert "zoo convert bee" in out


@pytest.mark.parametrize("command", ["show", "convert"])
def test_an_unknown_model_is_misuse(zoo: Run, manifest: Path, command: str) -> None:
    """Exit code 2, one line, and the nearest name in it."""
    code, out, err = zoo(command, "beee", "--manifest", manifest)
    assert (code, out) == (2, "")
    assert "bee" in one_line(err).replace("beee", "")


@pytest.mark.parametrize(
    "line",
    [
        "zoo pull stranger",
        "zoo pull toy --build 0123",
        "zoo verify stranger",
        "zoo run stranger --input x.npy",
        "zoo bench stranger",
        "zoo transcribe stranger a.wav",
        "zoo report stranger",
        "zoo push hf://example/stranger",
        "zoo release list stranger",
        "zoo release provenance stranger",
        "zoo release rebuild stranger",
        "zoo release diff stranger",
        "zoo release catalog --model stranger",
        "menagerie pull stranger",
        "menagerie verify stranger",
        "menagerie run stranger --input x.npy",
    ],
)
def test_a_name_that_the_store_does_not_know_is_misuse(zoo: Run, store: Path, line: str) -> None:
    """Exit code 2 of every command, and one line that has the name."""
    program, *words = line.split()
    run = zoo if program == "zoo" else partial(zoo, by=menagerie)
    code, out, err = run(*words, "--store", store)
    assert (code, out) == (2, "")
    assert ("0123" if "0123" in words else "stranger") in one_line(err)


def test_a_malformed_manifest_is_misuse(zoo: Run, manifest: Path) -> None:
    """Exit code 2 and every fault with file, line and path; no traceback."""
    file = manifest / "toys.yaml"
    file.write_text(file.read_text().replace("resnet18}", "resnet18, colour: red}", 1))
    code, _, err = zoo("convert", "--manifest", manifest)
    assert code == 2
    assert re.search(r"toys\.yaml:\d+: models\.ant\.source.*colour", err)
    assert "Traceback" not in err


def test_bad_options_are_misuse(zoo: Run) -> None:
    """Unknown options, bad numbers, unknown targets: exit code 2, one line with the next step."""
    for arguments in (
        ("convert", "--no-such-option"),
        ("convert", "--random-weights", "minus one"),
        ("convert", "--random-weights", "-1"),
        ("convert", "--jobs", "0"),
        ("pull", "toy", "--target", "toaster"),
        ("pull",),
        ("frobnicate",),
    ):
        code, out, err = zoo(*arguments)
        assert (code, out) == (2, ""), arguments
        assert re.fullmatch(r"(zoo|toaster)\b.*", one_line(err)), err
    assert one_line(zoo("frobnicate")[2]) == "zoo: no such command 'frobnicate'. See `zoo --help`"
    assert "'conver'. Did you mean 'convert'? See `zoo --help`" in one_line(zoo("conver")[2])
    for arguments, fact in (
        (("convert", "--jobs", "0"), " --jobs: '0' is not a whole number from 1 to 64"),
        (
            ("release", "gc", "--keep-days", "nan"),
            " --keep-days: 'nan' is not a number from 0 to 36500",
        ),
        (("convert", "--precision", "x"), " --precision: 'x' is not one of 'float32', .*"),
        (("convert", "--jobs"), ": option '--jobs' requires an argument"),
        (("release", "gc", "--keep"), ": option '--keep' requires an argument"),
    ):
        command = "zoo release gc" if arguments[0] == "release" else "zoo convert"
        said = one_line(zoo(*arguments)[2])
        assert re.fullmatch(f"{command}{fact}. See `{command} --help`", said), said
    assert zoo("pull", "/x")[0] == 2


def test_an_invalid_store_address_is_misuse(zoo: Run, manifest: Path) -> None:
    """A URL of an unknown kind is refused before any work."""
    code, _, err = zoo("convert", "--manifest", manifest, "--store", "gopher://zoo")
    assert code == 2
    assert one_line(err).startswith("gopher://zoo: ")


def test_an_unreachable_store_is_one_line(
    zoo: Run, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server listens at the endpoint: exit code 1, what and where, no traceback."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    code, out, err = zoo("convert", "--manifest", manifest, "--store", "s3://zoo/x")
    assert (code, out) == (1, "")
    assert "127.0.0.1:9" in one_line(err)


def test_what_is_in_the_store_is_skipped_without_a_run(
    zoo: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All planned models are there: exit code 0, no Prefect API needed, the weights are named.

    A precision that a named model lacks is a failed row, which stops no other.
    """
    from flows.parameters import ConversionOptions
    from flows.plan import plan

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # would fail if asked
    place = str(tmp_path / "store")
    options = ConversionOptions(random_weights=0, manifest=str(manifest), store=place)
    for planned in plan([], ["cpu"], options):
        job = toy_job(
            tmp_path / planned.model, model=planned.model, build_key=planned.build_key, store=place
        )
        toy_bundle(job)
        prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
        publish_bundle(job)
    arguments = ("convert", "--manifest", manifest, "--store", place, "--random-weights", "0")
    code, out, err = zoo(*arguments, "--json")
    assert code == 0
    result: dict[str, Any] = json.loads(out)
    assert [r["outcome"] for r in result["results"]] == ["skipped", "skipped"]
    assert [r["random_weights"] for r in result["results"]] == [0, 0]
    assert "Random weights, seed 0" in err
    code, out, _ = zoo(*arguments)
    assert code == 0
    assert "Random weights, seed 0, instead of fetched ones: ant, bee" in out
    assert "2 skipped" in out
    precisions = ("--precision", "float32", "--precision", "bfloat16")
    code, out, _ = zoo("convert", "ant", "bee", *arguments[1:], *precisions, "--json")
    rows = [(r["model"], r["outcome"]) for r in json.loads(out)["results"]]
    assert code == 1
    assert sorted(rows) == [
        ("ant", "skipped"), ("ant_bfloat16", "failed"),
        ("bee", "skipped"), ("bee_bfloat16", "failed"),
    ]  # fmt: skip


def test_a_prefect_server_that_is_away_is_one_line(
    zoo: Run, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PREFECT_API_URL set that server is meant, and no other is started in its place."""
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    asked = ("--manifest", manifest, "--random-weights", "0", "--store", tmp_path, "--json")
    code, out, err = zoo("convert", "ant", *asked)
    assert (code, out) == (1, "")
    assert "http://127.0.0.1:9/api: Prefect's API does not answer" in err
    assert "unset PREFECT_API_URL" in err


def test_a_store_that_takes_nothing_is_refused_at_once(
    zoo: Run, manifest: Path, tmp_path: Path
) -> None:
    """Before Prefect's API is started, which takes much longer."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / INCOMING).write_text("a file where writers have their folder")
    asked = ("--manifest", manifest, "--random-weights", "0", "--store", tmp_path / "store")
    code, out, err = zoo("convert", "ant", *asked, "--json")
    assert (code, out) == (1, "")
    assert str(tmp_path / "store") in err
    assert not (home() / "prefect").exists()


def test_a_folder_of_this_machine_is_no_default_for_a_team(
    zoo: Run, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of PREFECT_API_URL are elsewhere: the store must be named; --local needs none."""
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.delenv("MENAGERIE_STORE", raising=False)
    code, _, err = zoo("convert", "ant", "--manifest", manifest, "--random-weights", "0")
    assert code == 2
    assert "--store" in err


def test_pull_makes_a_bundle(zoo: Run, store: Path, tmp_path: Path) -> None:
    """The folder opens as a bundle; the JSON says where it is; a second pull is content."""
    for _ in range(2):
        code, out, _ = zoo("pull", "toy", "--store", store, "-o", tmp_path / "out", "--json")
        assert code == 0
        pulled = json.loads(out)
        assert pulled["path"] == str(tmp_path / "out")
        assert pulled["random_weights"] == 0
    from menagerie.format.folder import open_bundle

    assert open_bundle(tmp_path / "out").manifest.model == "toy"


def test_pull_takes_the_short_build_that_releases_prints(
    zoo: Run, store: Path, tmp_path: Path
) -> None:
    """By both commands, from a folder and from a web server; what begins no build is not found."""
    _, listing, _ = zoo("releases", "toy", "--store", store)
    [short] = re.findall(r"\b[0-9a-f]{12}\b", listing)
    with serving(store) as server:
        for number, place in enumerate((store, server.address)):
            got = ("--store", place, "--build", short, "-o", tmp_path / str(number))
            assert zoo("pull", "toy", *got)[0] == 0
            assert (
                menagerie(["pull", "toy", *map(str, got[:-1]), str(tmp_path / f"m{number}")]) == 0
            )
            code, _, err = zoo(
                "pull", "toy", "--store", place, "--build", "123", "-o", tmp_path / "x"
            )
            assert code == 2
            assert "no release 123 of toy for cpu" in one_line(err)


def test_a_store_that_is_not_there_is_not_empty(zoo: Run, tmp_path: Path) -> None:
    """It is not reported as empty, and nothing is made in its place."""
    place = tmp_path / "nowhere"
    for command in (("pull", "toy"), ("releases", "toy"), ("catalog",), ("gc",)):
        code, _, err = zoo(*command, "--store", place)
        assert code == 1
        assert f"{place}: there is no such folder" in one_line(err)
    assert not place.exists()


@pytest.mark.parametrize("command", ["list", "diff", "rollback", "promote"])
def test_an_unknown_name_is_misuse(zoo: Run, store: Path, command: str) -> None:
    """Neither the store nor the manifest has it: the nearest name, not how to convert it."""
    code, _, err = zoo("release", command, "resnet81", "--store", store)
    assert code == 2
    assert "Did you mean 'resnet18'" in one_line(err)


def test_trust_is_found_where_readers_have_it(zoo: Run, tmp_path: Path) -> None:
    """`menagerie trust` is `zoo trust` as well, as with the other commands of readers."""
    nowhere = tmp_path / "rot.json"
    code, _, err = zoo("trust", nowhere)
    assert code == menagerie(["trust", str(nowhere)]) == 2
    assert one_line(err).startswith(f"{nowhere}: there is no such file. Give a publisher's root")
    assert zoo("keys", "trust", nowhere) == (code, "", err)
    code, _, err = zoo("trust", tmp_path)
    assert code == 2
    assert "is a folder. Give a publisher's root" in one_line(err)


def test_the_default_store_is_the_same_in_every_help(zoo: Run) -> None:
    """The variable, the local cluster's, a folder: in this order."""
    for command in ("convert", "show", "pull"):
        words = re.sub(r"[│\s`]+", " ", zoo(command, "--help")[1]).replace(" ,", ",")
        assert "$MENAGERIE_STORE, that of zoo cluster up, or a folder" in words


def test_both_commands_say_their_version(zoo: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """A line, and no complaint that no command was given."""
    assert re.fullmatch(r"zoo \d+\.\d+\.\d+\n", zoo("--version")[1])
    with pytest.raises(SystemExit) as end:
        menagerie(["--version"])
    assert end.value.code == 0
    assert re.fullmatch(r"menagerie \d+\.\d+\.\d+\n", capfd.readouterr().out)


def test_pull_as_zip(zoo: Run, store: Path, tmp_path: Path) -> None:
    """One file, which unpacks to the bundle, and no traces next to it."""
    from menagerie.format.archive import unpack

    place = tmp_path / "zips" / "toy.zip"
    assert zoo("pull", "toy", "--store", store, "--zip", "-o", place)[0] == 0
    assert [p.name for p in place.parent.iterdir()] == ["toy.zip"]
    assert (unpack(place, tmp_path / "unpacked") / "manifest.json").is_file()


def test_an_existing_zip_is_not_written_over(zoo: Run, store: Path, tmp_path: Path) -> None:
    """Misuse, as for a folder that holds something; the file stays as it was."""
    place = tmp_path / "mine.zip"
    place.write_text("mine")
    code, _, err = zoo("pull", "toy", "--store", store, "--zip", "-o", place)
    assert (code, place.read_text()) == (2, "mine")
    assert "exists. Remove it or choose another place" in one_line(err)


def test_pull_into_the_current_folder(
    zoo: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell must not be left in a folder that is gone: misuse, and what to name instead."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    code, _, err = zoo("pull", "toy", "--store", store, "-o", ".")
    assert (code, list(here.iterdir())) == (2, [])
    assert "is the current folder" in one_line(err)
    assert zoo("pull", "toy", "--store", store, "-o", "bundle")[0] == 0
    monkeypatch.chdir(here / "bundle")
    assert zoo("pull", "toy", "--store", store, "-o", ".")[0] == 0  # it is there already
    assert zoo("pull", "toy", "--store", store, "-o", "../other/../again")[0] == 0
    assert (here / "again" / "manifest.json").is_file()


def test_pulling_what_is_not_there(zoo: Run, store: Path) -> None:
    """Misuse, and what the store does have."""
    code, _, err = zoo("pull", "yak", "--store", store)
    assert code == 2
    assert "toy" in one_line(err)


def test_a_damaged_store_gives_nothing(zoo: Run, store: Path, tmp_path: Path) -> None:
    """One wrong byte in a blob: refused by its sha256, and no folder appears."""
    blob = max((store / "blobs").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)
    blob.chmod(0o644)
    blob.write_bytes(b"x" * blob.stat().st_size)
    code, _, err = zoo("pull", "toy", "--store", store, "-o", tmp_path / "out")
    assert code == 1
    assert "not the ones that were published" in one_line(err)
    assert not (tmp_path / "out").exists()


def test_report_of_a_bundle_and_of_a_model(zoo: Run, store: Path, tmp_path: Path) -> None:
    """The page's path, or the report itself as JSON; from a folder, or out of the store."""
    assert zoo("pull", "toy", "--store", store, "-o", tmp_path / "out")[0] == 0
    code, out, _ = zoo("report", tmp_path / "out")
    assert (code, one_line(out)) == (0, str(tmp_path / "out" / "report.html"))
    code, out, _ = zoo("report", "toy", "--store", store, "--json")
    assert code == 0
    assert json.loads(out)["model"] == "toy"


def test_a_fetched_report_is_that_of_the_latest_release(
    zoo: Run, store: Path, tmp_path: Path
) -> None:
    """Having been shown once, it hides neither a newer release nor that of another store.

    Showing it again counts as use, so that it is not swept.
    """

    def shown(place: Path) -> str:
        code, out, _ = zoo("report", "toy", "--store", place, "--json")
        assert code == 0
        return str(json.loads(out)["build_key"])

    def publish(place: Path, key: str, created: str) -> None:
        job = toy_job(tmp_path / key[0], build_key=key, store=str(place))
        make_bundle(job.bundle, model="toy", build_key=key, state="lowered", created=created)
        prove(job, toy_records(), judge=lambda *_, **__: toy_judgement())
        publish_bundle(job)

    first = shown(store)
    [folder] = (home() / "fetched").iterdir()
    os.utime(folder, (0, 0))
    assert shown(store) == first
    assert folder.stat().st_mtime > 0
    publish(tmp_path / "other", "c" * 64, "2029-01-31T12:00:00+00:00")
    assert shown(tmp_path / "other") == "c" * 64
    assert shown(store) == first
    publish(store, "b" * 64, "2031-01-31T12:00:00+00:00")
    assert shown(store) == "b" * 64


def test_a_report_is_fetched_without_the_rest(zoo: Run, store: Path) -> None:
    """A release may have gigabytes: what is not shown is not fetched."""
    [document] = (store / "releases").rglob("*.json")
    files = json.loads(document.read_text())["files"]
    weights = files["weights"]["sha256"]
    (store / "blobs" / weights[:2] / weights).unlink()
    code, out, _ = zoo("report", "toy", "--store", store, "--json")
    assert (code, json.loads(out)["model"]) == (0, "toy")


@pytest.mark.parametrize("command", ["report", "verify"])
@pytest.mark.parametrize("path", ["../nowhere/x", "/no/such/folder", "no such model"])
def test_a_path_to_nothing_is_misuse(zoo: Run, command: str, path: str) -> None:
    """What is neither a path nor a model's name is said to be neither."""
    code, _, err = zoo(command, path)
    assert code == 2
    assert one_line(err).startswith(f"{path}: is neither a folder, a file nor")


def test_verify_of_an_artifact_that_does_not_load(zoo: Run, store: Path, tmp_path: Path) -> None:
    """The toy's library is no library: exit code 1, a verdict as JSON."""
    assert zoo("pull", "toy", "--store", store, "-o", tmp_path / "out")[0] == 0
    code, out, _ = zoo("verify", tmp_path / "out", "--json")
    assert code == 1
    assert json.loads(out)["verdict"] in ("refused", "crashed")
    code, out, _ = zoo("verify", "toy", "--store", store)
    assert code == 1
    assert one_line(out).startswith("refused: ")  # no table of no rows


def test_a_model_without_speech_is_named_as_it_was(zoo: Run, store: Path, tmp_path: Path) -> None:
    """Not by the folder into which it was pulled for a moment."""
    code, _, err = zoo("transcribe", "toy", tmp_path / "x.wav", "--store", store)
    assert code == 1
    assert one_line(err).startswith("toy: does not understand speech")


def test_run_refuses_what_is_no_bundle(zoo: Run, tmp_path: Path) -> None:
    """An empty folder: one line, exit code 1."""
    np.save(tmp_path / "x.npy", np.zeros(3))
    code, _, err = zoo("run", tmp_path, "--input", tmp_path / "x.npy")
    assert code == 1
    assert str(tmp_path) in one_line(err)


def test_the_schema_is_printed_or_written(zoo: Run, tmp_path: Path) -> None:
    """The same document either way."""
    code, out, _ = zoo("schema")
    assert code == 0
    assert zoo("schema", "-o", tmp_path / "schema.json")[0] == 0
    assert json.loads(out) == json.loads((tmp_path / "schema.json").read_text())
    assert zoo("schema", "--json")[:2] == (0, out)
    code, said, _ = zoo("schema", "-o", tmp_path / "schema.json", "--json")
    assert (code, json.loads(said)) == (0, {"path": str(tmp_path / "schema.json")})


def test_errors_of_our_own_are_one_line_unless_debugged(
    zoo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where a folder must be: a line; with MENAGERIE_DEBUG the whole exception."""
    (tmp_path / "file").write_text("")
    arguments = ("schema", "-o", tmp_path / "file" / "schema.json")
    code, _, err = zoo(*arguments)
    assert code == 1
    assert str(tmp_path / "file") in one_line(err)
    monkeypatch.setenv("MENAGERIE_DEBUG", "1")
    with pytest.raises(OSError, match="file"):
        zoo(*arguments)


def test_gc_says_what_it_would_remove_and_removes_it(zoo: Run, store: Path) -> None:
    """Nothing goes without `--delete`; what a release names never goes."""
    stray = store / "blobs" / "ff" / ("f" * 64)
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"of no release")
    arguments = ("gc", "--store", store, "--grace-hours", "0")
    code, out, _ = zoo(*arguments)
    assert code == 0
    assert "Nothing was removed" in out
    assert stray.exists()
    code, out, _ = zoo(*arguments, "--delete", "--json")
    assert code == 0
    assert json.loads(out)["swept"]["blobs"] == 1
    assert not stray.exists()
    assert zoo("pull", "toy", "--store", store, "-o", store.parent / "out")[0] == 0


@pytest.mark.parametrize("hours", ["-1", "8761", "nan"])
def test_gc_knows_the_bounds_of_its_rule(zoo: Run, store: Path, hours: str) -> None:
    """A grace that no rule takes is misuse of the option, which is named."""
    code, _, err = zoo("gc", "--store", store, "--grace-hours", hours)
    assert code == 2
    assert "--grace-hours" in err
    with pytest.raises(ValidationError):
        KeepRule(grace_hours=float(hours))
    assert zoo("gc", "--store", store, "--grace-hours", "8760")[0] == 0


def test_all_releases_are_verified(zoo: Run, store: Path) -> None:
    """Every release gets a line; the toy's library does not load, so the exit code is 1."""
    code, out, _ = zoo("release", "verify", "--store", store, "--json")
    assert code == 1
    [proof] = json.loads(out)["proofs"]
    assert (proof["model"], proof["outcome"]) == ("toy", "refuted")
    code, out, _ = zoo("release", "verify", "--target", "metal", "--store", store, "--json")
    assert (code, json.loads(out)["proofs"]) == (0, [])
    assert zoo("verify")[0] == 2
