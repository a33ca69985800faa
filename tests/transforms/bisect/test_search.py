"""Bisecting: wrong passes and kernels are found by name, a clean program is left in peace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from corrupt_target import (
    DropsBias,
    Harmless,
    Net,
    Runner,
    Shifts,
    computing,
    export,
    gone,
    wrong_at,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from menagerie.numerics import Dtype, Tolerance
from transforms.bisect import locate, reproducer
from transforms.bisect.__main__ import main
from transforms.loading import read_program
from transforms.pipeline import make_passes
from zoo.errors import LoweringError, SessionError, UsageError
from zoo.records import DivergenceStage as Stage
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

    from transforms.graph.graph_pass import GraphPass


pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

aten = torch.ops.aten


def test_clean_program_returns_none_after_one_run() -> None:
    """When all outputs are as eager's there is nothing to find, and one lowering shows it."""
    x, runner = torch.randn(4, 8), Runner()
    assert locate(export(Net(), x), [], [x], judge=runner) is None
    assert runner.runs == 1


@pytest.fixture(scope="module")
def net_program() -> ExportedProgram:
    """A network of three residual blocks and two branches."""
    return export(Net(), torch.randn(4, 8))


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_wrong_kernel_is_located_exactly(net_program: ExportedProgram, data: st.DataObject) -> None:
    """Whichever operator is wrong, it is the one that is named, in few lowerings."""
    x = torch.randn(4, 8)
    program = net_program
    victim = data.draw(st.sampled_from(computing(program)))
    runner = Runner(wrong_at(victim))
    found = locate(program, [], [x], judge=runner)
    assert found is not None
    assert (found.stage, found.pass_name, found.node) == (Stage.LOWERING, None, victim)
    assert found.max_abs > 0.1
    assert runner.runs <= 7


def test_long_program_takes_few_lowerings() -> None:
    """The number of lowerings grows with the logarithm of the program's length."""
    x = torch.randn(2, 8)
    program = export(Net(blocks=30), x)
    victim = [n for n in computing(program) if n.startswith("gelu")][13]
    runner = Runner(wrong_at(victim))
    found = locate(program, [], [x], judge=runner)
    assert found is not None
    assert found.node == victim
    assert len(computing(program)) > 150
    assert runner.runs <= 8


def test_place_in_the_model_is_named(tmp_path: Path) -> None:
    """The record names the module's path, the source line and the reproducer."""
    x = torch.randn(4, 8)
    folder = tmp_path / "wrong"
    found = locate(export(Net(), x), [], [x], judge=Runner(wrong_at("linear_3")), folder=folder)
    assert found is not None
    assert found.module_path == "blocks.1.down"
    assert "corrupt_target.py:" in found.source_line
    assert found.reproducer == folder


def test_reproducer_is_one_operator_and_runs_again(tmp_path: Path) -> None:
    """What is saved is the wrong operator alone with its inputs; it shows fault and cure."""
    x, wrong = torch.randn(4, 8), wrong_at("gelu_1")
    found = locate(export(Net(), x), [], [x], judge=Runner(wrong), folder=tmp_path)
    assert found is not None
    program = read_program(tmp_path / "program.pt2", unpickle=False)
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [aten.gelu.default]
    assert not gone(tmp_path, judge=Runner(wrong))
    assert gone(tmp_path, judge=Runner())
    text = (tmp_path / "divergence.json").read_text()
    assert "python -m transforms.bisect" in text
    assert "gelu_1" in text


def test_wrong_fusion_is_saved_with_what_it_takes(tmp_path: Path) -> None:
    """A node that is wrong only with its producer is saved with that producer, not with all."""

    def fused(node: Any, value: Any) -> Any:
        producer = node.args and getattr(node.args[0], "target", None)
        return value + 1.0 if node.name == "sigmoid" and producer is aten.linear.default else value

    x = torch.randn(4, 8)
    found = locate(export(Net(), x), [], [x], judge=Runner(fused), folder=tmp_path)
    assert found is not None
    assert found.node == "sigmoid"
    program = read_program(tmp_path / "program.pt2", unpickle=False)
    assert [n.name for n in program.graph.nodes if n.op == "call_function"] == [
        "linear_7",
        "sigmoid",
    ]
    assert not gone(tmp_path, judge=Runner(fused))


@pytest.mark.parametrize("victim", ["tanh", "gelu_1", "linear"])
def test_crash_is_located_like_a_wrong_number(victim: str) -> None:
    """A target that dies at an operator is as wrong as it can be there, whatever is asked along."""

    def dies(node: Any, value: Any) -> Any:
        if node.name == victim:
            raise SessionError("target", "killed by SIGSEGV")
        return value

    x = torch.randn(4, 8)
    found = locate(export(Net(), x), [], [x], judge=Runner(dies))
    assert found is not None
    assert found.node == victim
    assert found.max_abs == float("inf")


def test_program_that_cannot_be_lowered_is_not_a_wrong_result() -> None:
    """A LoweringError is the caller's to see."""

    def fails(node: Any, value: Any) -> Any:
        raise LoweringError("target", "no compiler")

    x = torch.randn(4, 8)
    with pytest.raises(LoweringError):
        locate(export(Net(), x), [], [x], judge=Runner(fails))


def test_dynamic_program_is_bisected_at_the_given_sizes() -> None:
    """Sizes that are not the example's run through symbols; the node is found all the same."""
    batch = torch.export.Dim("batch", min=2, max=64)

    class Reshaped(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).reshape(x.shape[0] * 2, 4).softmax(-1)

    program = torch.export.export(
        Reshaped(), (torch.randn(4, 8),), dynamic_shapes=({0: batch},), strict=False
    ).run_decompositions({})
    found = locate(program, [], [torch.randn(7, 8)], judge=Runner(wrong_at("gelu_2")))
    assert found is not None
    assert found.node == "gelu_2"


def test_tolerances_decide() -> None:
    """An error within the model's own tolerance is no divergence."""
    x = torch.randn(4, 8)
    program = export(Net(), x)
    slightly = Runner(lambda n, v: v + 0.01 if n.name == "tanh" else v)
    loose = Tolerance(absolute=0.1)
    found = locate(program, [], [x], judge=slightly, tolerances={Dtype.FLOAT32: loose})
    assert found is None
    assert locate(program, [], [x], judge=slightly) is not None


def _know(monkeypatch: pytest.MonkeyPatch, **passes: type[GraphPass]) -> None:
    """Let passes of the tests be known by name."""

    def made(choices: list[PassChoice]) -> list[GraphPass]:
        return [passes[choice.name](**choice.options) for choice in choices]

    monkeypatch.setattr(reproducer, "make_passes", made)


def test_wrong_pass_is_located_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass and the first node it made wrong are named; the target is never asked."""
    x, runner = torch.randn(4, 8), Runner()
    passes = [Harmless(), DropsBias(), Harmless()]
    found = locate(export(Net(), x), passes, [x], judge=runner, folder=tmp_path)
    assert found is not None
    assert (found.stage, found.pass_name) == (Stage.PASSES, "drops_bias")
    assert found.module_path == "blocks.0.up"
    assert runner.runs == 0
    program = read_program(tmp_path / "program.pt2", unpickle=False)
    assert {n.target for n in program.graph.nodes if n.op == "call_function"} == {
        aten.linear.default
    }
    _know(monkeypatch, drops_bias=DropsBias)
    assert not gone(tmp_path)
    _know(monkeypatch, drops_bias=Harmless)
    assert gone(tmp_path)


def test_right_passes_and_target_return_none() -> None:
    """Passes that keep the numbers are not blamed."""
    x = torch.randn(4, 8)
    assert locate(export(Net(), x), [Harmless(), Harmless()], [x], judge=Runner()) is None


def test_wrong_kernel_behind_right_passes_is_located_in_the_rewritten_program() -> None:
    """The node is named as in the program that was lowered."""
    x = torch.randn(4, 8)
    found = locate(export(Net(), x), [Harmless()], [x], judge=Runner(wrong_at("gelu_default_1")))
    assert found is not None
    assert (found.stage, found.node) == (Stage.LOWERING, "gelu_default_1")
    assert found.module_path == "blocks.1"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_element_types_are_judged(dtype: torch.dtype) -> None:
    """bfloat16 by its own tolerance, double precision bit for bit."""
    x = torch.randn(4, 8, dtype=dtype)
    program = export(Net().to(dtype), x)
    assert locate(program, [], [x], judge=Runner()) is None
    found = locate(program, [], [x], judge=Runner(wrong_at("tanh")))
    assert found is not None
    assert found.node == "tanh"


def test_folder_with_files_is_refused_before_any_work(tmp_path: Path) -> None:
    """Nothing is ever written over."""
    (tmp_path / "mine.txt").write_text("keep")
    x, runner = torch.randn(4, 8), Runner()
    with pytest.raises(UsageError, match="not empty"):
        locate(export(Net(), x), [], [x], judge=runner, folder=tmp_path)
    assert runner.runs == 0


def test_program_handed_in_is_not_changed(tmp_path: Path) -> None:
    """The search works on copies: graph, example inputs and buffers stay."""
    x = torch.randn(4, 8)
    program = export(Net(), x)
    before = str(program.graph)
    locate(program, [DropsBias()], [x], judge=Runner(), folder=tmp_path)
    assert str(program.graph) == before
    assert program.example_inputs is not None


def test_wrong_pass_is_rerun_with_the_options_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that is wrong only with an option of the entry is found, and found again, so."""
    x = torch.randn(4, 8)
    shifts = Shifts(by=2.0)
    shifts.options = {"by": 2.0}
    found = locate(export(Net(), x), [shifts], [x], judge=Runner(), folder=tmp_path)
    assert found is not None
    assert (found.pass_name, found.certain) == ("shifts", True)
    _know(monkeypatch, shifts=Shifts)
    assert not gone(tmp_path)
    facts = json.loads((tmp_path / "divergence.json").read_text())
    assert facts["choice"] == {"name": "shifts", "options": {"by": 2.0}}


def test_passes_know_the_options_they_were_made_with() -> None:
    """As an entry of the manifest gives them."""
    choice = PassChoice(name="fold_constants", options={"max_growth": 5})
    assert make_passes([choice, "fold_batch_norm"])[0].options == {"max_growth": 5}


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is a whole reproducer, or it is not there."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reproducer, "save_file", full)
    x = torch.randn(4, 8)
    with pytest.raises(OSError, match="No space"):
        locate(export(Net(), x), [DropsBias()], [x], judge=Runner(), folder=tmp_path / "found")
    assert list(tmp_path.iterdir()) == []


class _MendedFold(DropsBias):
    """The same fault under the name of one of our own passes."""

    name = "fold_batch_norm"


def test_command_says_when_the_fault_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 and the distances, once the named pass does it right."""
    x = torch.randn(4, 8)
    locate(export(Net(), x), [_MendedFold()], [x], judge=Runner(), folder=tmp_path)
    assert main([str(tmp_path)]) == 0
    assert "within tolerance" in capsys.readouterr().out


def test_command_refuses_what_is_no_reproducer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Misuse and foreign folders end in one line, not in a traceback."""
    assert main([]) == 2
    assert main([str(tmp_path)]) == 1
    assert "not a reproducer" in capsys.readouterr().err
