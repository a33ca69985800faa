"""The native tool: proving a bundle without Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from zoo.artifact.bundle import open_bundle, seal

TOOL = Path(sysconfig.get_path("scripts")) / "menagerie-run"
Bundles = Callable[[str], Path]


def run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tool with an empty environment, in a folder of no meaning."""
    command = [str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={})


@pytest.mark.parametrize("name", ["image", "sequence"])
def test_sound_bundle_is_proven(bundles: Bundles, tmp_path: Path, name: str) -> None:
    """Every output of every golden case has its line, and the exit code is 0."""
    done = run("--threads", "1", bundles(name), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.endswith(" ok")]
    outputs = load_file(bundles(name) / "programs/main/golden.safetensors")
    assert len(lines) == sum("/output/" in tensor for tensor in outputs)


def test_wrong_golden_is_told(bundles: Bundles, tmp_path: Path) -> None:
    """An output that differs has DIFFERS in its line, and the exit code is 1."""
    folder = tmp_path / "b"
    shutil.copytree(bundles("image"), folder)
    path = folder / "programs/main/golden.safetensors"
    tensors = {k: v + ("output" in k) for k, v in load_file(path).items()}
    save_file(tensors, path)
    seal(folder, open_bundle(bundles("image")).manifest)
    done = run("--threads", "1", folder, folder=tmp_path)
    assert done.returncode == 1
    assert re.search(r"out0 +1 .* DIFFERS\n", done.stdout)


def test_bench_prints_times(bundles: Bundles, tmp_path: Path) -> None:
    """--bench measures the first case."""
    done = run("--threads", "1", "--bench", "3", bundles("image"), folder=tmp_path)
    assert done.returncode == 0
    assert re.search(r"minimum \d+\.\d+ ms, median .* over 3 runs\n", done.stdout)


def test_changed_file_is_refused(bundles: Bundles, tmp_path: Path) -> None:
    """Hashes are checked first: a changed byte anywhere ends the tool before anything runs."""
    folder = tmp_path / "b"
    shutil.copytree(bundles("image"), folder)
    path = folder / "w.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    done = run(folder, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"menagerie-run: .*w\.safetensors: has sha256 .*\n", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ((), "a bundle is missing"),
        (("a", "b"), "only one bundle"),
        (("--threads", "x", "a"), "--threads: x is not a number"),
        (("a", "--bench"), "--bench needs a value"),
        (("--fast", "a"), "there is no option --fast"),
    ],
)
def test_misuse_exits_with_two(tmp_path: Path, arguments: tuple[str, ...], fact: str) -> None:
    """A wrong call says what is wrong, shows the usage, and exits with 2."""
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert fact in done.stderr
    assert "usage: menagerie-run" in done.stderr


def test_missing_bundle_is_one_line(tmp_path: Path) -> None:
    """A folder that is not there is one line of error and exit code 1."""
    done = run("nowhere", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_unknown_program_is_refused(bundles: Bundles, tmp_path: Path) -> None:
    """A program that the bundle lacks is answered with those it has."""
    done = run("--program", "decoder", bundles("image"), folder=tmp_path)
    assert done.returncode == 1
    assert 'has no program "decoder"; it has: main' in done.stderr
