"""The first day on a Mac: no step is lost, none stops the others, and each command exists."""

from __future__ import annotations

import math
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import mac_pieces
from benchmarks.mac_day import ON_THE_GPU, Step, empty, run, run_all, steps

ROOT = Path(__file__).parents[2]
KINDS = ("convert", "confirm", "pull", "contenders", "report")
_MODELS = ("mobilenet_v3_small", "parakeet_tdt_small")


def test_a_step_that_fails_is_noted_and_the_next_one_begins(tmp_path: Path) -> None:
    """The report has a row for each, and what each printed is in a file of its name."""
    wanted = (
        Step("bad", (sys.executable, "-c", "raise SystemExit(3)")),
        Step("good", (sys.executable, "-c", "print(0.1)")),
    )
    assert run_all(wanted, tmp_path, ["| step |"]) == 1
    head, *rows = (tmp_path / "report.md").read_text().splitlines()
    assert head == "| step |"
    assert ["FAILED with 3" in row for row in rows] == [True, False]
    assert (tmp_path / "good.txt").read_text().endswith("\n0.1\n")


def test_a_step_that_hangs_is_ended(tmp_path: Path) -> None:
    """With what it had printed, and with the process that it had started."""
    os.mkfifo(held := tmp_path / "held")
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    child = f"subprocess.Popen(['sleep', '600'], stdout=open('{held}', 'w'))"
    said = f"import subprocess, time; {child}; print('so far', flush=True); time.sleep(600)"
    row = run(Step("hanging", (sys.executable, "-c", said)), tmp_path, limit=5.0)
    assert "FAILED with 124" in row
    assert (tmp_path / "hanging.txt").read_text().endswith("so far\n\nended after 5 s\n")
    # A process that was killed lets go of its files some time after, on a busy machine.
    assert select.select([reader], [], [], 60)[0], "nobody holds it open any more"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_way_that_fails_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its milliseconds are no numbers, which the table shows as dashes."""
    monkeypatch.setattr(mac_pieces.sys, "executable", "false")
    times = mac_pieces.measured("torch")
    assert times
    assert all(math.isnan(each) for each in times)


@pytest.mark.parametrize("on_mac", [True, False])
def test_every_model_is_converted_confirmed_and_compared(tmp_path: Path, on_mac: bool) -> None:
    """Each step's output has a file of its own."""
    wanted = steps(_MODELS, tmp_path, on_mac=on_mac)
    names = [step.name for step in wanted]
    assert len(set(names)) == len(names)
    for model in _MODELS:
        assert {f"{kind}-{model}" for kind in KINDS} <= {*names}
    assert {"doctor", "operators", "pieces"} <= {*names}
    assert ("counts" in names) != on_mac


def test_every_command_exists(tmp_path: Path) -> None:
    """Each names files that there are, and options that its command has."""
    asked = set()
    for on_mac in (True, False):
        for step in steps(_MODELS[:1], tmp_path, on_mac=on_mac):
            program, *words = step.command
            if Path(program).name == "zoo":
                asked |= {(words[0], word) for word in words if word.startswith("-")}
            paths = [word for word in words if word.startswith("tests/")]
            assert all(Path(path).exists() for path in paths), paths
    for command in sorted({command for command, _ in asked}):
        zoo = Path(sys.executable).with_name("zoo")
        said = subprocess.run([zoo, command, "--help"], capture_output=True, text=True, check=True)
        for _, option in (each for each in asked if each[0] == command):
            assert option in said.stdout, (command, option)


_FAKE_MAC = """
import platform, sys
import torch  # a Mac's would look for other libraries

platform.system = lambda: "Darwin"


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ziglang":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
"""


def test_the_macs_operators_need_nothing_of_linux(tmp_path: Path) -> None:
    """They are collected where the system is a Mac and zig is missing.

    Collected alone: no library of a Mac runs here.
    """
    (tmp_path / "fake_mac.py").write_text(_FAKE_MAC)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "fake_mac", "-n0", "--collect-only", *ON_THE_GPU],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    sources = [ROOT / path for path in ON_THE_GPU]
    files = [file for path in sources for file in ([path] if path.is_file() else path.glob("*.py"))]
    needs = [
        f.name for f in files if re.search(r"emulated_device|ziglang|metal_bundles", f.read_text())
    ]
    assert needs == []


def test_what_an_earlier_day_left_is_removed(tmp_path: Path) -> None:
    """Its bundles too: no bundle is pulled to where one is."""
    (tmp_path / "report.md").write_text("Device: a Mac")
    (tmp_path / "a_model").mkdir()
    (tmp_path / "a_model" / "manifest.json").write_text("{}")
    assert list(empty(tmp_path).iterdir()) == []


def test_a_folder_of_something_else_is_left(tmp_path: Path) -> None:
    """Nothing is removed that no such day wrote."""
    letter = tmp_path / "letter.txt"
    letter.write_text("dear")
    with pytest.raises(SystemExit, match="Choose another with -o"):
        empty(tmp_path)
    with pytest.raises(SystemExit, match="Choose another with -o"):
        empty(letter)
    assert letter.read_text() == "dear"


def test_a_relative_folder_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in the checkout: they are given the whole path."""
    monkeypatch.chdir(tmp_path)
    assert empty(Path("day")) == tmp_path / "day"
    assert (tmp_path / "day").is_dir()


def test_a_command_that_is_absent_is_a_failed_step(tmp_path: Path) -> None:
    """The next step begins all the same."""
    assert "FAILED with 127" in run(Step("none", (str(tmp_path / "absent"),)), tmp_path)
    assert "absent" in (tmp_path / "none.txt").read_text()


def test_any_bytes_are_noted(tmp_path: Path) -> None:
    """A step whose output is no valid text passes, and its exit code counts."""
    code = "import sys; sys.stdout.buffer.write(b'\\xff ok')"
    assert "passed" in run(Step("bytes", (sys.executable, "-c", code)), tmp_path)
    assert (tmp_path / "bytes.txt").read_text().endswith("ok")
