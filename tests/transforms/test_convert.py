"""One call from a user's own module to a proven bundle."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype
from menagerie.session import Session
from menagerie.validation.findings import ValidationReport, Verdict
from tests.pieces import assert_as_eager
from transforms import Program, convert, converter
from transforms.export.prepare import prepare_module
from transforms.goldens.examples import redrawn
from transforms.targets import target_named
from transforms.targets.base import Settings
from zoo.errors import ExportError, MenagerieError, UnsupportedKernels, UsageError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

README = Path(__file__).parents[2] / "README.md"


class Mlp(nn.Module):
    """Two linears, a mask by name, two results."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """`hidden` and `logits`."""
        hidden = torch.relu(self.first(x))
        return {"logits": self.second(hidden) * mask, "hidden": hidden}


def _readme_lines() -> str:
    """The README's first Python block that converts."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return next(block for block in blocks if "import convert" in block)


@pytest.mark.parametrize(
    ("target", "state"),
    [
        ("cpu", ReleaseState.VALIDATED),
        pytest.param("metal", ReleaseState.EMULATED, marks=pytest.mark.sweep),
    ],
)
def test_the_lines_of_the_readme_run_as_printed(
    target: str,
    state: ReleaseState,
    tmp_path: Path,
    lend_compiled: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user's own module becomes a bundle that opens, on either target, signed by its maker."""
    monkeypatch.delenv("MENAGERIE_ALLOW_UNSIGNED")
    monkeypatch.setenv("MENAGERIE_HOME", str(lend_compiled(tmp_path / "home")))
    monkeypatch.chdir(tmp_path)
    lines = _readme_lines()
    assert len([line for line in lines.splitlines() if line.strip()]) <= 7
    assert 'target="metal"' in lines
    known: dict[str, Any] = {}
    exec(lines.replace('target="metal"', f'target="{target}"'), known)  # noqa: S102
    bundle = known["bundle"]
    assert bundle.report.worst_snr_db > 80
    opened = open_bundle(tmp_path / "my_model")
    assert opened.manifest == bundle.manifest
    assert opened.manifest.state is state
    assert opened.manifest.target == target
    with Session(tmp_path / "my_model") as session:
        assert session.run({session.inputs[0].name: np.zeros((3, 8), np.float32)})
    assert {path.name for path in tmp_path.iterdir()} == {"my_model", "home"}


def test_progress_is_reported_in_sentences(tmp_path: Path) -> None:
    """Each begins with its stage, in the order of the work."""
    lines: list[str] = []
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    convert(module.eval(), (torch.ones(1, 3),), out=tmp_path / "made", progress=lines.append)
    stages = list(dict.fromkeys(line.partition(":")[0] for line in lines))
    assert stages == ["export", "transform", "lower", "validate"]
    assert lines[0] == "export: program main: exported, 1 golden case"
    assert "lower: program main: 1 kernel generated" in lines
    assert "lower: program main: timed in turns with eager" in lines
    assert "validate: program main, case 0" in lines


def test_a_dynamic_module_runs_at_every_size_and_is_called_as_asked(tmp_path: Path) -> None:
    """Low, high and odd sizes are golden cases; names, tensors by name and ranges arrive."""
    module, batch = Mlp().eval(), Dim("batch", min=1, max=6)
    bundle = convert(
        module,
        (torch.randn(2, 8),),
        kwargs={"mask": torch.rand(2, 1)},
        out=tmp_path / "made",
        dynamic_shapes={"x": {0: batch}, "mask": {0: batch}},
        names={"inputs": ["features", "mask"], "outputs": ["scores", "inner"]},
        tolerances={"float32": 1e-3},
        licence="MIT",
        measure_seconds=0,
    )
    program = bundle.manifest.programs[0]
    assert program.dimensions == {"batch": (1, 6, 1)}
    assert [(t.name, t.shape) for t in program.inputs] == [
        ("features", ("batch", 8)),
        ("mask", ("batch", 1)),
    ]
    assert [(t.name, t.shape) for t in program.outputs] == [
        ("scores", ("batch", 4)),
        ("inner", ("batch", 16)),
    ]
    sizes = [case.dimensions["batch"] for case in bundle.report.validation.programs[0].cases]
    assert sizes == [2, 3, 1, 6]
    assert bundle.manifest.licence == "MIT"
    assert bundle.manifest.tolerances["float32"].absolute == 1e-3  # type: ignore[index]
    x, mask = torch.randn(5, 8), torch.rand(5, 1)
    with Session(bundle.folder) as session, torch.no_grad():
        found = session.run({"features": x.numpy(), "mask": mask.numpy()})
        expected = module(x, mask=mask)
    np.testing.assert_allclose(found["scores"], expected["logits"], atol=1e-5)
    np.testing.assert_allclose(found["inner"], expected["hidden"], atol=1e-5)


class _Sum(nn.Module):
    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Two tensors added."""
        return args[0] + args[1]


_ROWS = torch.export.Dim("rows", min=2, max=9)
_SIZES = {0: _ROWS}


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (_Sum(), (_SIZES, _SIZES)),
        (_Sum(), ((_SIZES, {-2: _ROWS}),)),
        (_Sum(), {"args": (_SIZES, _SIZES)}),
        (nn.Bilinear(3, 3, 2), {"input1": _SIZES, "input2": (_ROWS, None)}),
    ],
)
def test_sizes_are_given_by_inputs_or_parameters(
    module: nn.Module, shapes: Any, tmp_path: Path
) -> None:
    """One for each input in order, or as torch.export has them."""
    given = torch.randn(4, 3), torch.randn(4, 3)
    made = convert(
        module.eval(), given, dynamic_shapes=shapes, out=tmp_path / "out", measure_seconds=0
    )
    assert made.sizes == ("rows from 2 to 9",)


class _Spectrum(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A logarithm of magnitudes, cast as front ends of speech do."""
        window = torch.hann_window(16)
        return torch.stft(x, 16, 8, window=window, return_complex=True).abs().float().log1p()


def test_a_spectrum_is_cast(tmp_path: Path) -> None:
    """What torch asserts of a cast has no value of its own."""
    made = convert(_Spectrum(), (torch.randn(2, 64),), out=tmp_path / "out", measure_seconds=0)
    assert made.report.worst_snr_db is not None
    assert made.report.worst_snr_db > 100


class _Named(nn.Module):
    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        """Two tensors added."""
        return x + others["y"]


class _Keywords(nn.Module):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Three tensors added."""
        return x + y + z.sum(0)


@pytest.mark.parametrize("shapes", [{}, {"x": None}])
def test_fixed_sizes_need_no_names(tmp_path: Path, shapes: dict[str, None]) -> None:
    """Nothing is dynamic, so that inputs by `**` do not matter."""
    given = Program(_Named(), (torch.randn(4, 3),), {"y": torch.randn(4, 3)}, dynamic_shapes=shapes)
    assert convert({"main": given}, out=tmp_path / "out", measure_seconds=0).sizes == ()


@pytest.mark.parametrize("shapes", [{"x": _ROWS}, (5, None), (_SIZES, _SIZES, None)])
def test_sizes_that_fit_no_input_of_a_program_are_refused(tmp_path: Path, shapes: Any) -> None:
    """As those of a module, though they only name what it has."""
    given = torch.randn(4, 3), torch.randn(4, 3)
    exported = torch.export.export(_Sum(), given, dynamic_shapes=((_SIZES, _SIZES),))
    with pytest.raises(UsageError, match="not fit its inputs: args_0 of 2 axes, args_1 of 2 axes"):
        convert(exported, given, dynamic_shapes=shapes, out=tmp_path / "out")


def test_a_size_that_was_exported_as_fixed_is_not_made_dynamic(tmp_path: Path) -> None:
    """It would be proven at that size alone."""
    exported = torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),))
    with pytest.raises(UsageError, match="was exported with axis 0 of input fixed at 4"):
        convert(exported, dynamic_shapes=({0: _ROWS},), out=tmp_path / "out")


def test_an_unknown_axis_names_inputs_as_forward_does(tmp_path: Path) -> None:
    """In whatever order keywords were given."""
    keywords = {"z": torch.randn(2, 4, 3), "y": torch.randn(4, 3)}
    wrong = Program(_Keywords(), (torch.randn(4, 3),), keywords, dynamic_shapes={"x": {7: _ROWS}})
    with pytest.raises(UsageError, match="x of 2 axes, y of 2 axes, z of 3 axes"):
        convert({"main": wrong}, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("module", "shapes", "says"),
    [
        (nn.Bilinear(3, 3, 2), (_SIZES,), "not fit its inputs: input1 of 2 axes, input2 of 2"),
        (nn.Bilinear(3, 3, 2), {"x": _SIZES}, "Give one of each in order, or by name"),
        (nn.Bilinear(3, 3, 2), _SIZES, "not fit its inputs"),
        (nn.Bilinear(3, 3, 2), {"input1": {2: _ROWS}}, "not fit its inputs"),
        (nn.Bilinear(3, 3, 2), {"input1": {"rows": _ROWS}}, "not fit its inputs"),
        (_Sum(), {"args": (_SIZES,)}, "not fit its inputs: args of 2 axes, args of 2 axes"),
        (_Named(), {"x": _SIZES, "y": _SIZES}, r"inputs by `\*\*`.*parameters of forward"),
    ],
)
def test_sizes_that_fit_no_input_are_refused(
    module: nn.Module, shapes: Any, says: str, tmp_path: Path
) -> None:
    """In words of inputs and axes, with the form that is wanted."""
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    given, named = ((x,), {"y": y}) if isinstance(module, _Named) else ((x, y), {})
    with pytest.raises(UsageError, match=says):
        convert(module, given, kwargs=named, dynamic_shapes=shapes, out=tmp_path / "out")


def test_one_tensor_given_twice_makes_two_inputs() -> None:
    """An LSTM's states begin with the same zeros; they do not stay the same."""

    class Difference(nn.Module):
        def forward(self, hidden: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
            return hidden - 2.0 * cell

    zeros = torch.zeros(2, 3)
    hidden, cell = torch.ones(2, 3), torch.full((2, 3), 5.0)
    exported = prepare_module("main", Program(Difference(), (zeros, zeros))).program
    assert exported.module()(hidden, cell).tolist() == [[-9.0] * 3] * 2
    program = Program(Difference(), (zeros,), {"cell": zeros})
    exported = prepare_module("main", program).program
    assert exported.module()(hidden, cell=cell).tolist() == [[-9.0] * 3] * 2


def test_programs_share_the_weights_that_are_equal(tmp_path: Path) -> None:
    """An exported program and a module around the same layer: one copy of its weights."""

    class Negated(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -self.inner(x)

    layer = nn.Linear(8, 4).eval()
    exported = torch.export.export(layer, (torch.randn(3, 8),), strict=False)
    bundle = convert(
        {"plain": Program(exported), "negated": (Negated(layer).eval(), (torch.randn(3, 8),))},
        out=tmp_path / "made",
        measure_seconds=0,
    )
    plain, negated = bundle.manifest.programs
    assert (plain.name, negated.name) == ("plain", "negated")
    assert set(plain.constants.values()) == set(negated.constants.values())
    floats = 8 * 4 + 4
    assert 4 * floats <= bundle.report.weights_bytes < 4 * 2 * floats
    x = torch.randn(3, 8)
    for name, sign in (("plain", 1), ("negated", -1)):
        with Session(bundle.folder, name) as session, torch.no_grad():
            [found] = session.run({session.inputs[0].name: x.numpy()}).values()
            np.testing.assert_allclose(found, sign * layer(x), atol=1e-5)


def test_what_differs_from_eager_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    """No lowering can meet a bound of 1e-30: the error has output, error, bound and advice."""
    with pytest.raises(ValidationError) as raised:
        convert(
            nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).eval(),
            (torch.randn(3, 64),),
            out=tmp_path / "made",
            tolerances={"float32": 1e-30},
            measure_seconds=0,
        )
    text = str(raised.value)
    assert re.search(
        r"program main: output 'output' of golden case 0: max abs error \S+ exceeds", text
    )
    assert "search_seconds" in text
    assert list(tmp_path.iterdir()) == []


def test_a_failed_precision_names_its_costliest_layer(tmp_path: Path) -> None:
    """The layer whose rounding moves the outputs most, and how to leave it as it is."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    with torch.no_grad():
        module[1].weight.mul_(torch.logspace(-3, 0, 64))  # a group's small numbers are lost
        module[0].weight.copy_(torch.eye(64))  # kept exactly
    with pytest.raises(ValidationError, match=r"rounding 1\.weight alone .* Leave it .* keep="):
        convert(
            module,
            (torch.randn(3, 64),),
            out=tmp_path / "made",
            precision="int4-weight-only",
            tolerances={"float32": 1e-9},
            measure_seconds=0,
        )


def test_the_costliest_layer_is_one_of_the_wrong_program(tmp_path: Path) -> None:
    """Also where a layer of another program, which passes, costs that one more."""
    generator = torch.Generator().manual_seed(0)

    def layer(largest: float) -> nn.Linear:
        """Return numbers with a large one in each group, which its input has zero for."""
        made = nn.Linear(64, 64, bias=False)
        with torch.no_grad():
            made.weight.copy_(torch.randn(64, 64, generator=generator))
            made.weight[:, ::32], made.weight[::32] = largest, 0.0
        return made

    x = torch.randn(8, 64, generator=generator)
    x[:, ::32] = 0.0
    right, wrong = layer(6.8), nn.Sequential(layer(6.3), layer(6.3))
    with pytest.raises(ValidationError, match=r"^program wrong: .* rounding [01]\.weight alone"):
        convert(
            {"right": (right.eval(), (x,)), "wrong": (wrong.eval(), (x,))},
            out=tmp_path / "made",
            precision="int4-weight-only",
            measure_seconds=0,
        )


def test_folders_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compilers' and the bundle's own."""
    folder = tmp_path / "100% \" ;#{}'"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    made = convert(nn.ReLU(), (torch.randn(3),), out=folder / "made", measure_seconds=0)
    with Session(made.folder) as session:
        found = session.run({session.inputs[0].name: np.array([-1, 0, 2], np.float32)})
    assert found[session.outputs[0].name].tolist() == [0, 0, 2]


def test_the_truth_is_in_the_report(tmp_path: Path) -> None:
    """Artifact and eager each have their distance to the model in float64."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(64, 64), nn.GELU()).eval(), torch.randn(3, 64)
    made = convert(module, (x,), out=tmp_path / "made", measure_seconds=0)
    [exactness] = made.report.validation.programs[0].exactness
    with torch.no_grad():
        eager, truth = module(x), module.double()(x.double())
    snr_db = 20 * float(torch.log10(truth.norm() / (eager - truth).norm()))
    assert exactness.eager_snr_db == pytest.approx(snr_db, abs=0.1)
    assert exactness.artifact_snr_db > 120


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.ones(2, 8), "`inputs` is of type Tensor. Give a tuple of examples"),
        (5, "`inputs` is of type int"),
        (None, "`inputs` is of type NoneType"),
        ((torch.ones(2, 8, device="meta"),), "input 0 is on meta. Move inputs and module"),
        ((torch.ones(2, 9),), "eager PyTorch fails at the given inputs: mat1 and mat2 shapes"),
        ((torch.ones(2, 8), {3}), "input 1 is a set, not a tensor. Give tensors, numbers, text"),
        (([torch.ones(2, 8), {"a": range(3)}],), r"input 0\[1\]\['a'\] is a range, not a tensor"),
        ((), "there are no inputs"),
        ((3, None), "there are no inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, words: str, tmp_path: Path) -> None:
    """What is given in the place of a tensor is named."""
    with pytest.raises((UsageError, ExportError), match=words):
        convert(nn.Linear(8, 2).eval(), inputs, out=tmp_path / "made")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.jit.script(nn.Linear(8, 2)), "main: is TorchScript. Give the torch.nn.Mod"),
        (lambda: torch.jit.trace(nn.Linear(8, 2), torch.ones(2, 8)), "main: is TorchScript"),
        (lambda: nn.Sequential(torch.jit.script(nn.ReLU())), "main, 0: is TorchScript"),
        (lambda: nn.Linear(8, 2, device="meta"), "main: weight is on meta. Move inputs and module"),
        (lambda: nn.DataParallel(nn.Linear(8, 2)), "Give that: its `.module`"),
        (
            lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 2))),
            'main, 0: .* Convert the float module, with precision="int8"',
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_modules_that_have_no_graph_are_refused(
    make: Callable[[], nn.Module], words: str, tmp_path: Path
) -> None:
    """Before any work, with what to give instead."""
    with pytest.raises(UsageError, match=words):
        convert(make().eval(), (torch.ones(2, 8),), out=tmp_path / "made")


class Floating(nn.Module):
    """As torchvision writes float models that can be quantised; its activation was traced."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = torch.ao.nn.quantized.FloatFunctional()
        self.act = torch.jit.trace(nn.ReLU(), torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual connection."""
        return self.skip.add(x, self.act(x))


@pytest.mark.filterwarnings("ignore")
def test_parts_that_torch_reads_are_not_refused(tmp_path: Path) -> None:
    """FloatFunctional is a float module, and a traced part has a graph."""
    convert(Floating().eval(), (torch.randn(2, 8),), out=tmp_path / "made", measure_seconds=0)


def test_a_lazy_module_is_to_be_called_first(tmp_path: Path) -> None:
    """It has no weights before."""
    with pytest.raises(ExportError, match="Call the module once"):
        convert(nn.LazyLinear(8).eval(), (torch.ones(2, 8),), out=tmp_path / "made")


class Absent(nn.Module):
    """As attention returns None in place of its weights."""

    def forward(self, x: torch.Tensor) -> Any:
        """Two tensors among other values."""
        return x + 1, None, {"none": None, "twice": 2 * x}


class Alike(nn.Module):
    """Two results of one name, and one that is no tensor."""

    def forward(self, x: torch.Tensor) -> Any:
        """Both paths are written a_b."""
        return {"a": {"b": x + 1}, "a_b": 2 * x, "c": None}


@dataclass
class _Heads:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class _InRecords(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[_Heads, dict[str, _Heads]]:
        """Records in a tuple and in a dictionary of one."""
        return _Heads(x + 1, x * 2), {"second": _Heads(x - 1)}


def test_a_dataclass_gives_its_fields(tmp_path: Path) -> None:
    """By their names, wherever in the result it is."""
    x = torch.randn(2, 3)
    made = convert(_InRecords().eval(), (x,), out=tmp_path / "out", measure_seconds=0)
    with Session(made.folder) as session:
        found = session.run({"x": x.numpy()})
    wanted = {"output_0_logits": x + 1, "output_0_hidden": x * 2, "output_1_second_logits": x - 1}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value.numpy())


@pytest.mark.parametrize(
    ("module", "names"), [(Alike(), None), (Absent(), ["output_0", "output_2_twice"])]
)
def test_none_in_a_result_is_left_out(tmp_path: Path, module: nn.Module, names: Any) -> None:
    """Other results keep their names; those of one name are called by their places."""
    bundle = convert(module, (torch.randn(3),), out=tmp_path / "made", measure_seconds=0)
    with Session(bundle.folder) as session:
        found = session.run({"x": np.array([1, 2, 3], np.float32)})
    assert [each.tolist() for each in found.values()] == [[2, 3, 4], [2, 4, 6]]
    assert list(found) == names or names is None


def test_misuse_is_reported_before_any_work(tmp_path: Path) -> None:
    """Unknown targets and dtypes, invalid names, and a folder that is not empty."""
    module, x = nn.Linear(8, 2).eval(), torch.ones(2, 8)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"target": "tpu"}, "there is no such target.*cpu, metal"),
        ({"tolerances": {"int64": 1.0}}, "no tolerance for 'int64'"),
        ({"model": "Has Spaces"}, "cannot be called 'Has Spaces'"),
        ({"out": tmp_path / "full"}, "exists"),
        ({"names": {"outputs": ["a", "b"]}}, "has 1 outputs"),
        ({"names": {"output": ["a"]}}, "names has 'output'"),
        ({"passes": ["fold_everything"]}, "there is no pass 'fold_everything'"),
        (
            {"passes": [{"name": "fold_constants", "options": {"max_growth": "x"}}]},
            "pass fold_constants: option 'max_growth' cannot be 'x'. Its default is 1048576",
        ),
        ({"passes": "fold_constants"}, "`passes` is of type str. Give a list of names"),
        ({"passes": [{"gate": "open"}]}, "{'gate': 'open'} is no pass. Give names, or {'name'"),
        ({"tolerances": 1e-3}, "`tolerances` is of type float. Give them by dtype"),
        ({"tolerances": {"float32": "1"}}, "tolerance of float32: .*not str"),
        ({"names": ["x"]}, "`names` is of type list"),
        ({"kwargs": [x]}, "`kwargs` is of type list"),
        ({"kwargs": {"bias": x}}, "argument 'bias'; forward takes input. Correct inputs= or"),
        ({"kwargs": {0: x}}, "`kwargs` has the key 0. Use strings as keys"),
        ({"names": {"inputs": "input"}}, "`names` has a str where a list"),
        ({"names": {"inputs": 5}}, "`names` has a int where a list"),
        ({"names": {"inputs": {"x"}}}, "`names` has a set where a list"),
        ({"names": {"outputs": [""]}}, "one of the outputs is called ''"),
        ({"calls": "2"}, "cannot be '2' calls. Give `calls` from 1"),
        ({"dynamic_shapes": 5}, "`dynamic_shapes` is of type int. Give sizes by input"),
        ({"dynamic_shapes": "n"}, "`dynamic_shapes` is of type str"),
        ({"threads": True}, "there are no True threads"),
        ({"model": 3}, "`model` is of type int. Give its name"),
        ({"progress": "yes"}, "`progress` is of type str. Give a function"),
        ({"accuracy": "top-1"}, "`accuracy` is of type str"),
        ({"precision": "int8", "keep": [0]}, r"`keep` is \[0\]"),
        ({"precision": "int8", "keep": iter(["0"])}, "`keep` is of type list_it.* names of layers"),
        (
            {"precision": "int8-static", "calibration": iter([(x,)])},
            "`calibration` is of type list_it",
        ),
        ({"dynamic_shapes": ({0: "batch"},)}, "`dynamic_shapes` does not fit its inputs"),
        ({"threads": 0}, "there are no 0 threads"),
        ({"threads": 257}, "from 1 to 256"),
        ({"threads": 1.5}, "there are no 1.5 threads"),
        ({"measure_seconds": -1}, "`measure_seconds` is -1"),
        ({"measure_seconds": float("nan")}, "`measure_seconds` is nan"),
        ({"search_seconds": "1"}, "`search_seconds` is '1'"),
    ]
    for changes, words in cases:
        with pytest.raises(UsageError, match=words):
            convert(module, (x,), **({"out": tmp_path / "made"} | changes))
    with pytest.raises(UsageError, match="inputs or names too"):
        convert({"main": (module, (x,))}, (x,), out=tmp_path / "made")
    mappings: list[tuple[dict[Any, Any], str]] = [
        ({"Main": (module, (x,))}, "cannot be called 'Main'"),
        ({1: (module, (x,))}, "cannot be called 1"),
        ({"a" * 101: (module, (x,))}, "cannot be called 'aaa.*at most 100"),
        ({"main": module}, "program main: is a Linear"),
        ({"main": ()}, "program main: is a tuple of 0"),
        ({"main": (module, (x,), {}, None, {}, 3)}, "program main: is a tuple of 6"),
        ({"main": None}, r"program main: is a NoneType. Give a Program\(module, inputs\)"),
    ]
    for mapping, words in mappings:
        with pytest.raises(UsageError, match=words):
            convert(mapping, out=tmp_path / "made")


def test_the_build_key_follows_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other code made of the same module is another artifact."""
    settings = Settings(target=target_named("cpu"))
    keys = {converter._key("net", settings, ())}
    keys.add(converter._key("net", settings, ()))
    monkeypatch.setattr(converter, "code_digest", lambda: "0" * 64)
    keys.add(converter._key("net", settings, ()))
    assert len(keys) == 2


def test_sizes_that_cannot_be_proven_are_refused(tmp_path: Path) -> None:
    """A range without an end, and sizes that depend on each other."""

    class Pair(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.sum() + y.sum()

    rows = Dim("rows", min=1, max=8)
    with pytest.raises(ExportError, match=r"axis 0 of input 'input' has no largest size.*Dim"):
        convert(
            nn.Linear(8, 2).eval(),
            (torch.ones(2, 8),),
            dynamic_shapes=({0: Dim("batch")},),
            out=tmp_path / "made",
        )
    with pytest.raises(ExportError, match=r"no largest size up to 2 \*\* 31"):
        convert(
            nn.Linear(8, 2).eval(),
            (torch.ones(2, 8),),
            dynamic_shapes=({0: Dim("batch", max=2**40)},),
            out=tmp_path / "made",
        )
    with pytest.raises(ExportError, match=r"is rows \+ 1, which depends on another size"):
        convert(
            Pair(),
            (torch.ones(3), torch.ones(4)),
            dynamic_shapes=({0: rows}, {0: rows + 1}),
            out=tmp_path / "made",
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_resized_examples_hold_what_the_example_holds(dtype: torch.dtype) -> None:
    """Every element is one of the example's, and rows differ where the example's do."""
    example = torch.arange(12).reshape(3, 4).to(dtype)
    made = redrawn(example, [50, 4], seed="x:0")
    assert made.shape == (50, 4)
    assert made.dtype is dtype
    assert set(made.flatten().tolist()) <= set(example.flatten().tolist())
    assert len({tuple(row.tolist()) for row in made}) > 1
    assert torch.equal(made, redrawn(example, [50, 4], seed="x:0"))


def test_resized_masks_keep_their_form() -> None:
    """A prefix stays a prefix where it is cut, and is repeated where it grows."""
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert redrawn(mask, [2, 2], seed="m").tolist() == [[True, True], [True, False]]
    assert redrawn(mask, [3, 3], seed="m").tolist() == [*mask.tolist(), mask[0].tolist()]


class _InNarrower(torch.nn.Module):
    """Computes in one dtype and returns a wider one; with `beside`, also what was never narrow."""

    def __init__(self, inside: torch.dtype, outside: torch.dtype, *, beside: bool = False) -> None:
        super().__init__()
        layers = [nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(512, 32)).to(inside)
        self.inside, self.outside, self.beside = inside, outside, beside

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        narrow = self.layers(x.to(self.inside)).to(self.outside)
        return (narrow, (x * 2).to(self.outside)) if self.beside else (narrow,)


@pytest.mark.parametrize(
    ("inside", "outside", "target"),
    [
        (torch.float16, torch.float32, "cpu"),
        (torch.bfloat16, torch.float32, "metal"),
        (torch.float32, torch.float64, "cpu"),
    ],
)
def test_a_cast_at_the_end_is_judged_by_what_was_computed(
    inside: torch.dtype, outside: torch.dtype, target: str, tmp_path: Path
) -> None:
    """A network in halves that returns float32 errs as halves do, and is no worse for the cast."""
    torch.manual_seed(0)
    module, x = _InNarrower(inside, outside).eval(), torch.randn(3, 512)
    made = convert(module, (x,), target=target, out=tmp_path / "out", measure_seconds=0)
    wide, narrow = (Dtype(str(d).removeprefix("torch.")) for d in (outside, inside))
    assert made.manifest.tolerances[wide] == DEFAULT_TOLERANCES[narrow]
    with Session(made.folder) as session, torch.no_grad():
        [found] = session.run({"x": x.numpy()}).values()
        [expected] = module(x)
    error = np.abs(found - expected.numpy()).max()
    assert found.dtype == expected.numpy().dtype
    assert error <= DEFAULT_TOLERANCES[narrow].absolute


class _Moved(nn.Module):
    """Halves and floats of eight bits that are only looked up, cast and sliced."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.table((x > 0).long())[:, 1:3].float()
        return rows.exp() * 2 + x.half()[:, None].float() + x.to(torch.float8_e4m3fn).float()[0]


def test_what_is_only_moved_in_halves_changes_no_tolerance(tmp_path: Path) -> None:
    """Only what rounds its results may err by them."""
    x = torch.linspace(-3, 3, 32)
    module = _Moved().eval()
    made = convert(module, (x,), out=tmp_path / "out", measure_seconds=0)
    assert made.manifest.tolerances == DEFAULT_TOLERANCES
    assert_as_eager(made.folder, module, (x,), rtol=1.3e-6, atol=1e-5)


def test_an_output_that_was_never_narrow_keeps_its_tolerance_for_all(tmp_path: Path) -> None:
    """Tolerances are by dtype: an output in float32 from end to end holds the others to its own."""
    module = _InNarrower(torch.bfloat16, torch.float32, beside=True).eval()
    made = convert(module, (torch.randn(3, 512),), out=tmp_path / "out", measure_seconds=0)
    assert made.manifest.tolerances == DEFAULT_TOLERANCES


@pytest.mark.parametrize("verdict", [Verdict.CRASHED, Verdict.REFUSED, Verdict.TIMED_OUT])
def test_what_did_not_run_is_no_matter_of_tolerances(verdict: Verdict) -> None:
    """Past the front door, since no module is known that ends its artifact's process."""
    report = ValidationReport(verdict=verdict, detail="killed by SIGSEGV", programs=())
    text = str(converter._failed_proof(report, None))
    assert "killed by SIGSEGV" in text
    assert "tolerances" not in text
    assert "search_seconds" not in text


def test_what_no_runtime_has_is_listed_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In the error, each with its line; torch's own warnings of the same do not reach the user."""

    class Eigen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eig(x)[0].real

    with pytest.raises(UnsupportedKernels) as caught:
        convert(Eigen(), (torch.randn(4, 4),), out=tmp_path / "out")
    *listed, advice = str(caught.value).splitlines()
    assert "  aten.linalg_eig.default" in listed
    assert advice.startswith("Write these calls with other operators")
    assert capfd.readouterr() == ("", "")
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A link, though to an empty folder, and a place below a file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    for place, words in (("link", "link: is a link or a file"), ("file/made", "file: .*exists")):
        with pytest.raises(MenagerieError, match=f"(?i){words}"):
            convert(nn.ReLU(), (torch.ones(2),), out=tmp_path / place)


def test_a_folder_that_fills_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """As by another conversion; nothing of this one stays behind."""
    out = tmp_path / "out"

    def put(_: str) -> None:
        out.mkdir(exist_ok=True)
        (out / "theirs").write_text("here first")

    with pytest.raises(UsageError, match=f"^{out}: something else was put there meanwhile"):
        convert(nn.Linear(4, 4).eval(), (torch.randn(2, 4),), out=out, progress=put)
    assert [each.name for each in tmp_path.rglob("*")] == ["out", "theirs"]


def test_a_full_disk_is_named_by_the_folder_that_is_written(tmp_path: Path) -> None:
    """Here a limit of the process, which the weights do not fit into."""
    program = f"""
import resource, torch
from pathlib import Path
from transforms import convert
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, resource.RLIM_INFINITY))
module = torch.nn.Linear(2000, 2000).eval()
convert(module, (torch.randn(1, 2000),), out=Path({str(tmp_path / "out")!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert f"{tmp_path}: a file grew above the size this process may write" in last
    assert list(tmp_path.iterdir()) == []
