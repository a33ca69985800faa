"""A reproducer runs again where it was written; a stranger's only on demand."""

from __future__ import annotations

import operator
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from corrupt_target import Net, Runner, export, gone, wrong_at
from safetensors.torch import save_file
from torch import nn

from transforms.bisect import locate
from transforms.bisect.__main__ import main
from transforms.bisect.reproducer import rerun, write_program
from transforms.graph.interpret import capture, output_nodes
from transforms.loading import read_program
from zoo.errors import ArtifactError, SourceRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class _Payload:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reproducer of one wrong operator."""
    folder = tmp_path_factory.mktemp("saved") / "found"
    x = torch.randn(4, 8)
    assert locate(export(Net(), x), [], [x], judge=Runner(wrong_at("gelu_1")), folder=folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it to corrupt."""
    return Path(shutil.copytree(saved, tmp_path / "found"))


def _replace(archive: Path, entry: str, content: bytes) -> None:
    with zipfile.ZipFile(archive) as opened:
        kept = {name: opened.read(name) for name in opened.namelist()}
    root = next(iter(kept)).split("/")[0]
    with zipfile.ZipFile(archive, "w") as opened:
        for name, data in (kept | {f"{root}/{entry}": content}).items():
            opened.writestr(name, data)


ENTRIES = (  # of torch's archive, which are or may be pickles
    "data/sample_inputs/model.pt",
    "data/weights/model.pt",
    "data/constants/model.pt",
    "data/constants/opaque_obj_0",
    "data/constants/custom_obj_0",
    "serialized_example_inputs.pt",
    "serialized_state_dict.pt",
)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_changed_program_is_not_opened(folder: Path, tmp_path: Path, entry: str) -> None:
    """One byte that was not written here, and nothing of the archive is read."""
    mark = tmp_path / "ran"
    _replace(folder / "program.pt2", entry, pickle.dumps(_Payload(mark)))
    with pytest.raises(SourceRefused, match=r"program\.pt2: is not opened.*--unpickle"):
        rerun(folder, judge=Runner())
    assert not mark.exists()


def test_a_program_that_was_swapped_while_it_was_saved_is_not_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written here is what came from torch, and not what is in the file afterwards."""
    _replace(folder / "program.pt2", ENTRIES[0], pickle.dumps(_Payload(tmp_path / "ran")))
    stranger = (folder / "program.pt2").read_bytes()
    save, write = torch.export.save, Path.write_bytes

    def swap() -> None:
        for file in (tmp_path / "new").rglob("program.pt2"):
            write(file, stranger)

    def saved(program: ExportedProgram, file: Any) -> None:
        save(program, file)
        swap()

    def written(file: Path, content: bytes) -> int:
        size = write(file, content)
        swap()
        return size

    monkeypatch.setattr(torch.export, "save", saved)
    monkeypatch.setattr(Path, "write_bytes", written)
    x, found = torch.randn(4, 8), tmp_path / "new" / "found"
    assert locate(export(Net(), x), [], [x], judge=Runner(wrong_at("gelu_1")), folder=found)
    assert (found / "program.pt2").read_bytes() == stranger
    with pytest.raises(SourceRefused, match="is not opened"):
        rerun(found, judge=Runner())
    assert not (tmp_path / "ran").exists()


def test_a_stranger_s_program_is_opened_when_asked_to(
    folder: Path,
    tmp_path: Path,
    lend_compiled: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused by the command as well, in one line and with nothing unpickled, before that."""
    monkeypatch.setenv("MENAGERIE_HOME", str(lend_compiled(tmp_path / "elsewhere")))
    with monkeypatch.context() as away:
        away.setattr(torch.export, "load", None)
        away.setattr(torch, "load", None)
        assert main([str(folder)]) == SourceRefused.exit_code
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "--unpickle" in line
    assert main(["--unpickle", str(folder)]) == 0  # the CPU target does it right
    assert gone(folder, unpickle=True, judge=Runner())


@pytest.mark.parametrize("file", ["program.pt2", "inputs.safetensors", "divergence.json"])
@pytest.mark.parametrize("legacy", [True, False], ids=["pickle", "zip"])
def test_pickle_in_place_of_a_file_is_refused(
    folder: Path, tmp_path: Path, file: str, legacy: bool
) -> None:
    """Whatever its name, a file is read as what it must be."""
    mark = tmp_path / "ran"
    torch.save(_Payload(mark), folder / file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises((ArtifactError, SourceRefused), match=r"not a reproducer|not opened"):
        rerun(folder, judge=Runner())
    assert not mark.exists()


def test_missing_inputs_are_reported(folder: Path) -> None:
    """In one line, not by a traceback from inside the run."""
    save_file({}, folder / "inputs.safetensors")
    with pytest.raises(ArtifactError, match="not a reproducer"):
        rerun(folder, judge=Runner())


def test_a_file_that_is_no_program_is_refused(folder: Path) -> None:
    """Also where it may be opened."""
    (folder / "program.pt2").write_bytes(b"PK\x03\x04")
    with pytest.raises(ArtifactError, match="not a reproducer"):
        rerun(folder, unpickle=True, judge=Runner())


def written_and_read(program: ExportedProgram, folder: Path) -> ExportedProgram:
    """A program that has been in a file."""
    write_program(program, folder / "program.pt2")
    return read_program(folder / "program.pt2", unpickle=True)


class _Odd(nn.Module):
    """Weights of several kinds: permuted, expanded, complex, half, a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kernel = nn.Parameter(torch.randn(3, 2, 3, 3).to(memory_format=torch.channels_last))
        self.thin = nn.Parameter(torch.randn(5).bfloat16())
        self.spread: torch.Tensor
        self.phase: torch.Tensor
        self.steps: torch.Tensor
        self.register_buffer("spread", torch.randn(3, 1).expand(3, 4))
        self.register_buffer("phase", torch.randn(3, 1, 1, dtype=torch.complex64), persistent=False)
        self.register_buffer("steps", torch.arange(3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.conv2d(x, self.kernel)
        return {
            "turned": (y * self.phase).abs(),
            "rest": y.mean((-1, -2)) + self.thin.float().sum() + self.spread.sum(1) + self.steps,
        }


def test_weights_come_back_as_they_were_stored(tmp_path: Path) -> None:
    """Bytes, dtype and strides of each weight; the program computes the same to the bit."""
    x = torch.randn(2, 2, 6, 6)
    program = export(_Odd(), x)
    back = written_and_read(program, tmp_path)
    for name, value in {**program.state_dict, **program.constants}.items():
        read = {**back.state_dict, **back.constants}[name]
        assert (read.dtype, read.stride(), type(read)) == (value.dtype, value.stride(), type(value))
        assert torch.equal(read, value)
    for left, right in zip(output_nodes(program), output_nodes(back), strict=True):
        expected = capture(program, [x], [left.name])[left.name]
        assert torch.equal(capture(back, [x], [right.name])[right.name], expected)


def test_calls_come_back_and_no_others(tmp_path: Path) -> None:
    """Two of batch norm's three results are not read, before and after."""
    program = export(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), torch.ones(1, 2, 5, 5))
    back = written_and_read(program, tmp_path)
    assert [str(n.target) for n in back.graph.nodes] == [str(n.target) for n in program.graph.nodes]
    assert len([n for n in back.graph.nodes if n.target is operator.getitem]) == 1


def test_dynamic_sizes_come_back(tmp_path: Path) -> None:
    """A program that was saved whole, for want of time, still runs at other sizes."""

    class Folded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(x, (0, x.shape[0] // 2)).reshape(-1).softmax(0)

    pairs = torch.export.Dim("pairs", min=1, max=32)
    program = torch.export.export(
        Folded(), (torch.randn(4, 8),), dynamic_shapes=({0: 2 * pairs},), strict=False
    ).run_decompositions({})
    assert any(not symbol.is_Symbol for symbol in program.range_constraints)
    back = written_and_read(program, tmp_path)
    x = torch.randn(10, 8)
    (name,) = [n.name for n in output_nodes(back)]
    assert torch.equal(capture(back, [x], [name])[name], Folded()(x))
    assert {str(r) for r in back.range_constraints.values()} == {
        str(r) for r in program.range_constraints.values()
    }


def test_program_that_cannot_be_written_keeps_its_divergence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A custom operator: the node is named all the same, and nothing is half-written."""

    @torch.library.custom_op("menagerie_own::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(twice(x))

    x = torch.randn(4)
    found = locate(
        export(Twice(), x), [], [x], judge=Runner(wrong_at("twice")), folder=tmp_path / "found"
    )
    assert found is not None
    assert (found.node, found.reproducer) == ("twice", None)
    assert "menagerie_own" in caplog.text
    assert list(tmp_path.iterdir()) == []
