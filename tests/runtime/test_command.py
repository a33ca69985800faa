"""The `menagerie` command, as it is typed."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bundle_maker import publish
from safetensors.numpy import load_file

from menagerie.cli import main
from menagerie.errors import ArtifactError
from menagerie.format.archive import pack
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from menagerie.library import native_tool
from menagerie.paths import home
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Bundles = Callable[[str], Path]


@pytest.fixture
def published(bundles: Bundles, tmp_path: Path) -> str:
    """A store that holds the convolutional net as the model `image`."""
    folder = tmp_path / "made"
    shutil.copytree(bundles("image"), folder)
    seal(folder, replace(open_bundle(folder).manifest, state=ReleaseState.VALIDATED))
    publish(open_store(str(tmp_path / "store")), folder)
    return str(tmp_path / "store")


def test_pull_verify_run_and_bench(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The four commands one after another; the output equals eager's."""
    out = tmp_path / "out"
    assert main(["pull", "image", "--store", published, "-o", str(out)]) == 0
    assert main(["verify", str(out)]) == 0
    assert "verified" in capsys.readouterr().out
    golden = load_file(out / "programs/main/golden.safetensors")
    np.save(tmp_path / "x.npy", golden["0/input/image"])
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    assert main(["run", str(out), *files]) == 0
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), golden["0/output/out0"], rtol=1e-4, atol=1e-5
    )
    capsys.readouterr()
    assert main(["run", str(out), "x.png"]) == 2
    assert "does not say what to make of files. Give arrays by --inp" in capsys.readouterr().err
    assert main(["run", str(out), "x.png", *files]) == 2
    assert "takes files, or arrays by --input" in capsys.readouterr().err
    assert main(["run", str(out), *files[:3], str(tmp_path / "y.png")]) == 2
    assert "y.png: ends in neither .npy nor .npz" in capsys.readouterr().err
    assert main(["bench", str(out), "--seconds", "0.05", "--json"]) == 0
    times = json.loads(capsys.readouterr().out)
    assert 0 < times["minimum_ms"] <= times["median_ms"] <= times["p90_ms"]
    assert times["threads"] == 1


def test_a_bundle_without_goldens_runs_and_says_what_it_cannot(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a proof alone reads is not downloaded; another pull brings it."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    store = ["--store", published, "-o"]
    assert main(["pull", "image", *store, str(whole)]) == 0
    assert main(["pull", "image", *store, str(out), "--no-goldens"]) == 0
    golden = "programs/main/golden.safetensors"
    assert {path.name for path in whole.rglob("*")} - {path.name for path in out.rglob("*")} == {
        "golden.safetensors"
    }
    np.save(tmp_path / "x.npy", load_file(whole / golden)["0/input/image"])
    files = ["--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy")]
    assert main(["run", str(out), *files]) == 0
    for command in (["verify", str(out)], ["bench", str(out)]):
        capsys.readouterr()
        assert main(command) == 1
        assert "left out when the bundle was pulled. Pull it without" in "".join(
            capsys.readouterr()
        )
    done = subprocess.run([native_tool(), out], capture_output=True, text=True, check=False)
    assert "left out when the bundle was pulled. Pull it without --no-goldens" in done.stderr
    assert done.returncode == 1
    with pytest.raises(ArtifactError, match="left out"):
        pack(out, tmp_path / "a.zip")
    zipped = ["pull", "image", *store, str(tmp_path / "b.zip"), "--zip", "--no-goldens"]
    assert main(zipped) == 2
    assert main(["pull", "image", *store, str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / golden).read_bytes() == (whole / golden).read_bytes()


def test_a_bundle_is_a_folder_a_zip_or_a_name(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For every command that takes one; of what was unpacked for it nothing is left."""
    packed = tmp_path / "image.zip"
    assert main(["pull", "image", "--store", published, "--zip", "-o", str(packed)]) == 0
    for named in (str(packed), "image"):
        capsys.readouterr()
        assert main(["bench", named, "--store", published, "--seconds", "0", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] >= 1
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    given = f"--store={published}", f"--input={tmp_path}/x.npy"
    assert main(["run", "image", *given]) == 1
    assert capsys.readouterr().err.startswith("image: input image has 1 axes")
    assert list((home() / "unpacked").iterdir()) == []


def test_the_store_that_zoo_publishes_to_is_meant(
    published: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none is named: what `zoo convert` has made on this machine is run by its name."""
    monkeypatch.delenv("MENAGERIE_STORE", raising=False)
    monkeypatch.setenv("MENAGERIE_HOME", published.removesuffix("/store"))
    assert main(["bench", "image", "--seconds", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pull", "image"], 2, "Name one by --store or MENAGERIE_STORE"),
        (["pull", "image", "--store", "/no/such/store"], 1, "there is no such folder"),
        (["verify", "/no/such/bundle"], 2, "is neither a folder, a file nor a model's name"),
        (["run", "/no/such/bundle"], 2, "is neither a folder, a file nor a model's name"),
        (["bench", "image"], 2, "Name one by --store or MENAGERIE_STORE"),
        (["run", "x", "--treads", "2"], 2, "Did you mean --threads? See: menagerie run --help"),
    ],
)
def test_mistakes_are_reported_in_a_line(
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """No traceback, the fact, and 2 for misuse."""
    monkeypatch.delenv("MENAGERIE_STORE", raising=False)
    monkeypatch.setenv("MENAGERIE_HOME", str(tmp_path))
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert says in printed.err + printed.out
    assert "Traceback" not in printed.err
