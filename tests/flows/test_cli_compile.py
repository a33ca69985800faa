"""`zoo compile`: a user's own module from the command line."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flows.cli import invoke
from menagerie.format.folder import open_bundle
from transforms import Program, convert
from transforms.loading import read_input
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x, mask):
        return self.linear(x) * mask

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls

def broken():
    raise RuntimeError("no weights today")

def number():
    return 3
"""


pytestmark = pytest.mark.usefixtures("lent_home")


@pytest.fixture
def zoo(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in a folder with NET in it: exit code and both outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_net", raising=False)  # of a test before
    (tmp_path / "my_net.py").write_text(NET)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = invoke([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return run


def test_a_users_own_class_is_compiled(zoo: Run, tmp_path: Path) -> None:
    """Named inputs, sizes that two of them share, and a result that a script reads."""
    sizes = ("--dynamic", "x:0,mask:0=1..5")
    inputs = ("-i", "x=2x4", "-i", "mask=2x1:float32")
    code, out, _ = zoo("compile", "my_net:Net", *inputs, *sizes, "-o", "made", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["path"] == str(tmp_path / "made")
    assert (result["model"], result["target"], result["state"]) == ("net", "cpu", "validated")
    assert result["worst_abs"] < 1e-5
    assert result["bytes"] == sum(
        e.bytes for e in open_bundle(tmp_path / "made").manifest.listed.values()
    )
    [program] = open_bundle(tmp_path / "made").manifest.programs
    assert list(program.dimensions.values()) == [(1, 5, 1)]
    assert [t.shape[1:] for t in program.inputs] == [(4,), (1,)]


def test_a_saved_program_is_opened_only_on_demand(zoo: Run, tmp_path: Path) -> None:
    """Torch unpickles parts of the file; so says the refusal, and the flag lets it."""
    program = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.ones(1, 4),), strict=False)
    torch.export.save(program, tmp_path / "linear.pt2")
    code, _, err = zoo("compile", "linear.pt2", "-o", "made")
    assert code == 1
    assert "unpickles parts" in err
    assert "--unpickle" in err
    code, out, _ = zoo("compile", "linear.pt2", "--unpickle", "-o", "made", "--name", "mine")
    assert code == 0
    assert out.startswith("made: validated for cpu")
    page = (tmp_path / "made" / "report.html").read_text()
    assert "zoo run FOLDER --input input=input.npy --output y.npy" in page
    assert "zoo pull" not in page  # no store has it
    assert open_bundle(tmp_path / "made").manifest.model == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("my_net:Net", "-i", "two by four"), 2, "is not an input"),
        (("my_net:Net", "-i", "2x4:float33"), 2, "is not an input"),
        (("my_net:Net", "-i", "x=absent.npy"), 2, "cannot be read as .npy"),
        (("my_net:Net", "-i", "x=a=absent.npy"), 2, "a=absent.npy: cannot be read as .npy"),
        (("my_net:Net", "-i", "./x=1.npy"), 2, "./x=1.npy: cannot be read as .npy"),
        (("my_net:Net", "-i", "several.npz"), 2, "is not an input"),
        (("my_net:Net", "-i", "2x4:float32:0..9"), 2, "float32 takes no range"),
        (("my_net:Net", "-i", "2x4:uint8:0..256"), 2, "uint8 holds 0 to 255"),
        (("my_net:Net", "-i", "2x4:bool:0..7"), 2, "bool holds 0 to 1"),
        (("my_net:Net", "-i", "2x4", "--dynamic", "x:0=1..4"), 2, "Its forward takes x, mask"),
        (("my_net:Counter", "-i", "2x4", "--dynamic", "0:0=1..4"), 2, "there is no input '0'"),
        (("my_net:Counter", "-i", "2x4", "--dynamic", "x:2=1..4"), 2, "input 'x' has 2 axes"),
        (("my_net:Counter", "-i", "2x4", "--dynamic", "x:0,x:0=1..4"), 2, "x:0 is given twice"),
        (("my_net:Counter", "-i", "2x4", "--dynamic", "y:0=1..4"), 2, "there is no input 'y'"),
        (("my_net:Counter", "-i", "2x4", "--dynamic", "x:0=4..1"), 2, "is not a dynamic size"),
        (("my_net:Counter", "-i", "2x4"), 1, "'calls' is changed by"),
        (("my_net:Counter", "-i", "2x4", "-t", "tpu"), 2, "there is no such target"),
        (
            ("my_net:broken", "-i", "2x4"),
            1,
            "no weights today). It is to be package.module:callable",
        ),
        (("my_net:number", "-i", "2x4"), 1, "returned a int, not an nn.Module. It is to be"),
        (("my_net:nothing", "-i", "2x4"), 1, "which returns a torch.nn.Module, without arguments"),
        (("no_such_file.pt2",), 2, "there is no such file"),
        (("just some words",), 2, "neither a .pt2 file nor code"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: tuple[str, ...], code: int, words: str, zoo: Run, tmp_path: Path
) -> None:
    """Exit code 2 for misuse and 1 for a module that cannot be converted; never a traceback."""
    ended, out, err = zoo("compile", *arguments, "-o", "made")
    assert ended == code
    assert words in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "made").exists()


def test_a_file_that_is_no_program_is_refused(zoo: Run, tmp_path: Path) -> None:
    """Also when it may be opened."""
    (tmp_path / "wrong.pt2").write_bytes(b"not an archive")
    code, _, err = zoo("compile", "wrong.pt2", "--unpickle", "-o", "made")
    assert code == 1
    assert "is not an exported program" in err
    assert "\n" not in err.strip()


def test_a_damaged_archive_is_no_program(zoo: Run, tmp_path: Path) -> None:
    """Whatever is wrong with its list of files."""
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), tmp_path / "net.pt2")
    content = (tmp_path / "net.pt2").read_bytes()
    (tmp_path / "net.pt2").write_bytes(content.replace(b"PK\x01\x02", b"PK\x01\x7f"))
    code, _, err = zoo("compile", "net.pt2", "--unpickle", "-o", "made")
    assert code == 1
    assert "is not an exported program" in err


@pytest.mark.parametrize("name", ["net.pt", "net.jit", "net.pt2"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_archive_is_called_so(name: str, zoo: Run, tmp_path: Path) -> None:
    """By what is in it, whatever its name; none of it is run."""
    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), tmp_path / name)
    code, _, err = zoo("compile", name, "-i", "1x4", "-o", "made")
    assert code == 1
    assert f"{name}: is a TorchScript archive" in err
    assert "Give the code that it was made from" in " ".join(err.split())


def test_an_archive_that_is_called_an_array_is_refused(tmp_path: Path) -> None:
    """The words are those of `zoo run`, which reads such files too."""
    np.savez(tmp_path / "two.npz", np.zeros(2), np.zeros(3))
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    with pytest.raises(UsageError, match="holds several arrays"):
        read_input(str(tmp_path / "two.npy"))


def test_a_reports_command_runs_nothing_else(tmp_path: Path) -> None:
    """Whatever inputs and programs are called, the line is to be copied into a shell."""
    layer = Program(torch.nn.Linear(3, 2), (torch.randn(1, 3),), names={"inputs": ["x; touch y"]})
    made = convert({"enc": layer}, out=tmp_path / "made", measure_seconds=0)
    words = ["--input", "x; touch y=x_touch_y.npy", "--output", "y.npy", "--program", "enc"]
    assert shlex.split(made.report.arguments) == words


def test_a_module_without_inputs_is_told_how_to_give_them(zoo: Run) -> None:
    """By the option of the command, not by the argument of `convert()`."""
    code, _, err = zoo("compile", "zoo.models.builders.digits_cnn:digits_cnn", "-o", "made")
    assert code == 2
    assert "Give --input. Write [NAME=]1x3x224x224" in " ".join(err.split())


def test_inputs_are_drawn_as_written() -> None:
    """Shapes, dtypes and ranges; floats are the same at every call."""
    assert read_input("2x3").shape == (2, 3)
    assert torch.equal(read_input("2x3"), read_input("2x3"))
    ids = read_input("50:int64:7..9")
    assert (ids.dtype, set(ids.tolist())) == (torch.int64, {7, 8, 9})
    assert read_input("8:bool").dtype is torch.bool
    assert read_input("scalar").shape == ()
    with pytest.raises(UsageError, match="9 is more than 7"):
        read_input("5:int64:9..7")
