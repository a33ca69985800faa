"""A reproducer from a stranger is data: whatever its files hold, no code of theirs runs.

The doors of torch 2.13's own archive, each found by reading torch/export/pt2_archive/_package.py,
torch/_export/serde/serialize.py, torch/utils/_pytree.py and torch/fx/graph.py:

archive    data/sample_inputs/*.pt (weights_only=True, then False), data/weights/*.pt and
           data/constants/*.pt (the legacy forms), entries with `use_pickle`, opaque_obj_* (pickle)
           and custom_obj_* (the TorchScript pickler) whatever their flag, data/aotinductor (a
           library that is loaded), the 2.7 form (serialized_*.pt)
graph      names (become Python source), operators (looked up from `torch` on), symbolic sizes
           (sympy's eval), guards_code (executed), tree specifications (import modules), strings
           (end up in generated C++), subgraphs and objects
"""

from __future__ import annotations

import json
import operator
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from corrupt_target import Net, Runner, export, wrong_at
from safetensors.torch import save_file
from torch import nn

from transforms.bisect import locate
from transforms.bisect.cutting import capture, output_nodes
from transforms.bisect.program_file import GRAPH, WEIGHTS, read_program, write_program
from transforms.bisect.reproducer import rerun
from zoo.errors import ArtifactError

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
    assert locate(export(Net(), x), [], [x], run=Runner(wrong_at("gelu_1")), folder=folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "found"))


def test_reproducer_opens_with_every_unpickler_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it needs one."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unpickles")

    for owner, name in ((torch, "load"), (torch.export, "load"), (pickle, "loads")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(torch._C, "_pickle_load_obj", refuse)
    monkeypatch.setattr(torch._C, "PyTorchFileReader", refuse)
    assert rerun(folder, run=Runner()).passed


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "instead"])
@pytest.mark.parametrize(
    "entry",
    [
        "data/sample_inputs/model.pt",
        "data/weights/model.pt",
        "data/constants/model.pt",
        "data/constants/opaque_obj_0",
        "data/constants/custom_obj_0",
        "serialized_example_inputs.pt",
        "serialized_state_dict.pt",
    ],
)
def test_archive_of_torch_is_never_opened(
    folder: Path, tmp_path: Path, entry: str, beside: bool
) -> None:
    """Neither an old reproducer's nor one laid into a new one; the old is told what to do."""
    mark = tmp_path / "ran"
    torch.export.save(read_program(folder), folder / "program.pt2")
    _replace(folder / "program.pt2", entry, pickle.dumps(_Payload(mark)))
    if beside:
        assert rerun(folder, run=Runner()).passed
    else:
        (folder / GRAPH).unlink()
        with pytest.raises(ArtifactError, match=r"of an earlier version.*zoo bisect"):
            rerun(folder, run=Runner())
    assert not mark.exists()


def _replace(archive: Path, entry: str, content: bytes) -> None:
    with zipfile.ZipFile(archive) as opened:
        kept = {name: opened.read(name) for name in opened.namelist()}
    root = next(iter(kept)).split("/")[0]
    with zipfile.ZipFile(archive, "w") as opened:
        for name, data in (kept | {f"{root}/{entry}": content}).items():
            opened.writestr(name, data)


@pytest.mark.parametrize("file", [GRAPH, WEIGHTS, "inputs.safetensors", "divergence.json"])
@pytest.mark.parametrize("legacy", [True, False], ids=["pickle", "zip"])
def test_pickle_in_place_of_a_file_is_refused(
    folder: Path, tmp_path: Path, file: str, legacy: bool
) -> None:
    """Whatever its name, a file is read as what it must be."""
    mark = tmp_path / "ran"
    torch.save(_Payload(mark), folder / file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ArtifactError, match="not a reproducer"):
        rerun(folder, run=Runner())
    assert not mark.exists()


def test_missing_inputs_are_said_to_be(folder: Path) -> None:
    """In one line, not by a traceback from inside the run."""
    save_file({}, folder / "inputs.safetensors")
    with pytest.raises(ArtifactError, match="not a reproducer"):
        rerun(folder, run=Runner())


_CODE = "__import__('pathlib').Path('MARK').touch()"
_IMPORTING_TREE = json.dumps(
    [1, {"type": "builtins.dict", "context": json.dumps([{"__enum__": 1, "fqn": "antigravity:X"}]),
         "children_spec": []}]
)  # fmt: skip


def _first_node(program: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = program["graph_module"]["graph"]["nodes"][0]
    return node


def _set_target(program: dict[str, Any], target: str) -> None:
    _first_node(program)["target"] = target


def _set_argument(program: dict[str, Any], argument: dict[str, Any]) -> None:
    _first_node(program)["inputs"].append({"name": "approximate", "arg": argument, "kind": 2})


def _set_size(program: dict[str, Any], expression: str) -> None:
    for meta in program["graph_module"]["graph"]["tensor_values"].values():
        meta["sizes"][0] = {"as_expr": {"expr_str": expression, "hint": {"as_int": 4}}}


def _set_range(program: dict[str, Any], expression: str) -> None:
    program["range_constraints"] = {expression: {"min_val": 2, "max_val": 4}}


def _set_guard(program: dict[str, Any], code: str) -> None:
    program["guards_code"] = [code]


def _set_tree(program: dict[str, Any], tree: str) -> None:
    called = {"inputs": [], "outputs": [], "in_spec": tree, "out_spec": tree}
    program["graph_module"]["module_call_graph"] = [{"fqn": "", "signature": called}]


def _set_metadata(program: dict[str, Any], text: str) -> None:
    _first_node(program)["metadata"] = {"stack_trace": text}


def _set_name(program: dict[str, Any], name: str) -> None:
    text = json.dumps(program).replace('"gelu_1"', json.dumps(name))
    program |= json.loads(text)


def _set_keyword(program: dict[str, Any], name: str) -> None:
    argument = {"as_string": "none"}
    _first_node(program)["inputs"].append({"name": name, "arg": argument, "kind": 2})


@pytest.mark.parametrize(
    ("spoil", "how"),
    [
        (_set_name, f"x = {_CODE} #"),
        (_set_name, f"x\r    {_CODE}"),
        (_set_keyword, f"approximate={_CODE}, x"),
        (_set_target, "torch.os.system"),
        (_set_target, "torch.hub.load"),
        (_set_target, "torch.ops.load_library"),
        (_set_target, "torch.ops.aten.save.default"),
        (_set_target, "torch.ops.aten.from_file.default"),
        (_set_target, "torch.ops.aten.__class__.mro"),
        (_set_target, "torch.ops.higher_order.cond"),
        (_set_target, "torch.ops.profiler._record_function_enter.default"),
        (_set_target, "_operator.methodcaller"),
        (_set_target, "#extension:operator"),
        (_set_size, _CODE),
        (_set_size, "().__class__.__base__.__subclasses__()"),
        (_set_size, "s0 + S('1')"),
        (_set_range, _CODE),
        (_set_size, "[s0 for s0 in (1,)][0]"),
        (_set_guard, _CODE),
        (_set_tree, _IMPORTING_TREE),
        (_set_metadata, f'File "x", line 1\r{_CODE}'),
        (_set_argument, {"as_string": 'none"; system("true"); //'}),
        (_set_argument, {"as_strings": ["none\\"]}),
        (_set_argument, {"as_operator": "torch.os.system"}),
        (_set_argument, {"as_custom_obj": {"name": "x", "class_fqn": "y"}}),
    ],
)
def test_graph_with_a_door_in_it_is_refused(
    folder: Path, tmp_path: Path, spoil: Any, how: Any
) -> None:
    """By name of the field, before torch sees it."""
    mark = tmp_path / "ran"
    program = json.loads((folder / GRAPH).read_text())
    if isinstance(how, str):
        how = how.replace("MARK", str(mark))
    spoil(program, how)
    (folder / GRAPH).write_text(json.dumps(program))
    with pytest.raises(ArtifactError, match="is not a reproducer of ours"):
        rerun(folder, run=Runner())
    assert not mark.exists()


@pytest.mark.parametrize("strides", [[1, 10**9], [-1, 1], [10**15, 1]])
def test_strides_that_leave_the_weight_are_refused(tmp_path: Path, strides: list[int]) -> None:
    """What the graph says of a weight is checked against the bytes that are there."""
    write_program(export(nn.Linear(3, 2), torch.randn(4, 3)), tmp_path)
    program = json.loads((tmp_path / GRAPH).read_text())
    meta = program["graph_module"]["graph"]["tensor_values"]["p_weight"]
    meta["strides"] = [{"as_int": stride} for stride in strides]
    (tmp_path / GRAPH).write_text(json.dumps(program))
    with pytest.raises((RuntimeError, ValueError)):
        read_program(tmp_path)


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


def test_weights_come_back_as_they_lay(tmp_path: Path) -> None:
    """Bytes, dtype and strides of each weight; the program computes the same to the bit."""
    x = torch.randn(2, 2, 6, 6)
    program = export(_Odd(), x)
    write_program(program, tmp_path)
    back = read_program(tmp_path)
    for name, value in {**program.state_dict, **program.constants}.items():
        read = {**back.state_dict, **back.constants}[name]
        assert (read.dtype, read.stride(), type(read)) == (value.dtype, value.stride(), type(value))
        assert torch.equal(read, value)
    for left, right in zip(output_nodes(program), output_nodes(back), strict=True):
        expected = capture(program, [x], [left.name])[left.name]
        assert torch.equal(capture(back, [x], [right.name])[right.name], expected)


def test_calls_come_back_and_no_others(tmp_path: Path) -> None:
    """Two of batch norm's three results are read by nobody, before and after."""
    program = export(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)), torch.ones(1, 2, 5, 5))
    write_program(program, tmp_path)
    back = read_program(tmp_path)
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
    write_program(program, tmp_path)
    back = read_program(tmp_path)
    x = torch.randn(10, 8)
    (name,) = [n.name for n in output_nodes(back)]
    assert torch.equal(capture(back, [x], [name])[name], Folded()(x))
    assert {str(r) for r in back.range_constraints.values()} == {
        str(r) for r in program.range_constraints.values()
    }


def test_program_that_cannot_be_written_keeps_its_divergence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator of someone's own: the node is named all the same, and nothing half-written."""

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
        export(Twice(), x), [], [x], run=Runner(wrong_at("twice")), folder=tmp_path / "found"
    )
    assert found is not None
    assert (found.node, found.reproducer) == ("twice", None)
    assert "menagerie_own" in caplog.text
    assert list(tmp_path.iterdir()) == []
