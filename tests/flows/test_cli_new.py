"""A manifest of one's own: what `zoo new` writes, and the lines of CONTRIBUTING."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.cli import invoke
from zoo.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 2)

    def forward(self, ids, mask, scale=None):
        if ids.shape[1] > 20:
            raise RuntimeError("too long")
        return {"scores": self.linear(self.table(ids)) * mask[..., None]}
"""


@pytest.fixture
def zoo(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in a folder with NET in it: exit code and both outputs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new_net.py").write_text(NET)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = invoke([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return run


INPUTS = ("-i", "2x6:int64:0..8", "-i", "mask=2x6:float32")


def test_an_entry_is_written_of_what_was_tried(zoo: Run, tmp_path: Path) -> None:
    """Names, dtypes, ranges and outputs are the module's; the manifest reads it."""
    sizes = ("--dynamic", "ids:1,mask:1=1..12")
    code, out, _ = zoo("new", "new_net:Net", *INPUTS, *sizes, "--json")
    assert code == 0
    assert json.loads(out)["next"] == "zoo convert net --manifest . --allow-factories"
    entry = load_manifest(tmp_path).spec("net")
    [program] = entry.programs
    ids, mask = program.inputs
    assert (ids.name, ids.shape, ids.dtype) == ("ids", (2, "ids_1"), "int64")
    assert 0 <= ids.sample.low < ids.sample.high <= 9
    assert (mask.name, mask.shape) == ("mask", (2, "ids_1"))
    assert (program.dimensions["ids_1"].low, program.dimensions["ids_1"].high) == (1, 12)
    assert program.outputs == ("scores",)
    assert (tmp_path / "net.yaml").read_text().startswith("version: 1\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "takes ids, mask, scale, and no input is given"),
        (("-i", "image=2x6:int64"), 1, "forward takes ids, mask, scale"),
        ((*INPUTS, "--dynamic", "x:0=1..4"), 2, "no axis 0 of an input 'x'. The inputs are ids"),
        ((*INPUTS, "--dynamic", "ids:1,mask:1=1..30"), 1, "too long"),
        ((*INPUTS, "--name", "Net!"), 2, "is no name for a model"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_written(
    arguments: tuple[str, ...], code: int, words: str, zoo: Run, tmp_path: Path
) -> None:
    """By forward's own names; sizes that eager does not take are found."""
    ended, out, err = zoo("new", "new_net:Net", *arguments)
    assert (ended, out) == (code, "")
    assert words in " ".join(err.split())
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.yaml"))


def test_an_entry_is_not_overwritten(zoo: Run, tmp_path: Path) -> None:
    """It may have been filled in by hand."""
    (tmp_path / "net.yaml").write_text("mine")
    code, _, err = zoo("new", "new_net:Net", *INPUTS)
    assert code == 2
    assert "exists" in err
    assert (tmp_path / "net.yaml").read_text() == "mine"


def test_messages_name_commands_with_the_manifest_given(zoo: Run, tmp_path: Path) -> None:
    """As `zoo list` alone would list other models; and a target is had by `targets:`."""
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        "version: 1\nfamily: A\nmodels:\n  ant:\n    summary: a\n"
        "    source: {kind: torchvision, builder: resnet18}\n"
        "    programs: [{inputs: [{name: x, shape: [1]}]}]\n    licence: {spdx: MIT}\n"
    )
    code, _, err = zoo("show", "zebra", "--manifest", folder)
    assert code == 2
    assert f"`zoo list --manifest '{folder}'`" in " ".join(err.split())
    code, _, err = zoo("convert", "ant", "--manifest", folder, "-t", "metal")
    assert code == 2
    assert "or add `targets: [metal]` to an entry" in " ".join(err.split())


def test_the_lines_of_contributing_run_as_they_stand(tmp_path: Path) -> None:
    """In an empty folder, by a shell: a manifest of one's own is written, listed and converted."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    [lines] = [b for b in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "mine.yaml" in b]
    work = tmp_path / "empty"
    work.mkdir()
    done = subprocess.run(
        ["/bin/bash", "-euc", lines],
        cwd=work,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MENAGERIE_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:] + done.stdout[-800:]
    assert {"net.py", "mine.yaml", "net_again.yaml"} <= {f.name for f in work.iterdir()}
    assert re.search(r"my_net\W+cpu\W+(published|converted|validated)", done.stdout), done.stdout
