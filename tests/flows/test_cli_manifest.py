"""Custom manifests: messages about them, and the lines of CONTRIBUTING."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.cli import invoke

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def zoo(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line: exit code and both outputs."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = invoke([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return run


_ENTRY = """
version: 1
family: A
models:
  ant:
    summary: a
    source: {kind: torchvision, builder: resnet18}
    programs: [{inputs: [{name: x, shape: [1]}]}]
    licence: {spdx: CC-BY-4.0, url: 'https://ants.example', attribution: The ants}
    targets: [cpu]
"""


def test_messages_name_commands_with_the_manifest_given(zoo: Run, tmp_path: Path) -> None:
    """As `zoo list` alone would list other models; and a target is had by `targets:`."""
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "a.yaml").write_text(_ENTRY)
    code, _, err = zoo("show", "zebra", "--manifest", folder)
    assert code == 2
    assert f"`zoo list --manifest '{folder}'`" in " ".join(err.split())
    code, _, err = zoo("convert", "ant", "--manifest", folder, "-t", "metal")
    assert code == 2
    assert "or add `targets: [metal]` to an entry" in " ".join(err.split())


def test_whom_a_licence_wants_named_is_shown(zoo: Run, tmp_path: Path) -> None:
    """With the licence and its address: anyone who passes the weights on must name them."""
    (tmp_path / "a.yaml").write_text(_ENTRY)
    code, out, _ = zoo("show", "ant", "--manifest", tmp_path)
    assert code == 0
    assert "CC-BY-4.0 https://ants.example The ants" in " ".join(out.split())


def test_a_new_manifest_converts_as_it_is_written(
    zoo: Run, lent_home: Path, tmp_path: Path
) -> None:
    """CONTRIBUTING's lines run in an empty folder; no file is replaced; what is next is said."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    [lines] = [b for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "zoo new" in b]
    work = tmp_path / "empty"
    work.mkdir()
    done = subprocess.run(
        ["/bin/bash", "-euc", lines],
        cwd=work,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MENAGERIE_HOME": str(lent_home),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:] + done.stdout[-800:]
    [command] = re.findall("next: (.*)", done.stdout)
    assert command in lines
    assert {f.name for f in (work / "mine").iterdir()} >= {"my_net.py", "my_net.yaml"}
    assert re.search(r"my_net\W+cpu\W+(published|converted|validated)", done.stdout), done.stdout
    for name, words in (("my_net", ": already exists"), ("json", "is no name"), ("A", "is no")):
        code, _, err = zoo("new", name, "--manifest", work / "mine")
        assert (code, words in " ".join(err.split())) == (2, True), err
