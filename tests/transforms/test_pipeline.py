"""The pipeline and the contract every pass is held to."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import transforms
from transforms import Program, available_passes, run_passes
from transforms.export.prepare import prepare_module
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal, check_program
from transforms.pipeline import make_passes, passes_in
from transforms.stages import transform
from transforms.targets import Settings, all_targets, target_named
from zoo.errors import PassError, UsageError
from zoo.precision import Precision, WeightPrecision
from zoo.spec import PassChoice


@pytest.fixture
def program() -> torch.export.ExportedProgram:
    """relu(linear(x)) + 1, with a weight and a bias."""

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.linear(x)) + 1

    exported = torch.export.export(Small().eval(), (torch.randn(4, 3),), strict=False)
    return exported.run_decompositions({})


class _Named(GraphPass):
    """A pass of the tests' own."""

    name: ClassVar[str] = "test_pass"
    summary: ClassVar[str] = ""


def _names(target: str) -> list[str]:
    return [p.name for p in make_passes(passes_in(WeightPrecision(), None, target))]


@pytest.mark.parametrize("target", all_targets())
def test_default_lists_keep_the_order_that_all_passes_have(target: str) -> None:
    """One order serves all targets; dead code goes before the device's."""
    names = _names(target)
    general = len(target_named(target).general_passes)
    assert names[:general] == [n for n in available_passes() if n in names[:general]]
    assert set(names) <= set(available_passes())
    assert names[general - 1] == "remove_dead_code"


@pytest.mark.parametrize("target", all_targets())
def test_a_model_that_names_passes_keeps_those_of_the_device(target: str) -> None:
    """Its own come in place of the general ones; what code generation counts on stays."""
    own = [p.name for p in make_passes(passes_in(WeightPrecision(), ["fold_batch_norm"], target))]
    general = len(target_named(target).general_passes)
    assert own == ["fold_batch_norm", *_names(target)[general:]]


def test_a_precision_rounds_between_the_general_passes_and_the_devices() -> None:
    """Weights that are folded are rounded, and no copy that a device asks for is made before."""
    names = [
        p.name for p in make_passes(passes_in(WeightPrecision(Precision.FLOAT16), None, "cpu"))
    ]
    at = names.index("narrow_weights")
    assert names[at - 1] == "remove_dead_code"
    assert names[at + 1 :] == _names("cpu")[at:]


_MUTATORS = {
    "ProgramEditor", "call_function", "create_node", "decompose", "drop_inputs",
    "eliminate_dead_code", "erase_node", "move_to", "move_to_device_pass", "node_copy",
    "replace_all_uses_with", "replace_input_with", "run_decompositions", "set_constant",
}  # fmt: skip


def _mutators_called(file: Path) -> set[str]:
    """Names of what changes a program among the functions that a file calls."""
    calls = [
        node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
    ]
    names = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls}
    return names & _MUTATORS


def test_programs_are_edited_by_passes_alone() -> None:
    """So that every change of a program has a journal, a check behind it and a line in a report.

    The search for a fault cuts pieces out of a program, export leaves out constant inputs, a
    reader of files drops what torch adds to them, the runner of passes makes an editor, and where
    torch has written a program's buffers one after another, lowering copies what they were.
    """
    root = Path(transforms.__file__).parents[1]
    found = {
        path.relative_to(root).as_posix(): names
        for floor in ("transforms", "tasks", "flows", "zoo")
        for path in (root / floor).rglob("*.py")
        if path.relative_to(root).parts[:2]
        not in {("transforms", "graph"), ("transforms", "passes")}
        if (names := _mutators_called(path))
    }
    assert found == {
        "transforms/bisect/pieces.py": {
            "ProgramEditor", "create_node", "eliminate_dead_code", "erase_node", "node_copy",
        },
        "transforms/export/trace.py": {"ProgramEditor", "drop_inputs"},
        "transforms/loading.py": {"erase_node"},
        "transforms/lowering/inductor.py": {"call_function", "replace_input_with"},
        "transforms/pipeline.py": {"ProgramEditor"},
    }  # fmt: skip


def test_weights_are_rounded_in_the_one_copy_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A precision's costs are measured between two passes, and make no copy of their own."""
    copies: list[object] = []
    made = ProgramEditor.__init__

    def counted(self: ProgramEditor, *arguments: Any, **keywords: Any) -> None:
        copies.append(self)
        made(self, *arguments, **keywords)

    prepared = prepare_module("main", Program(nn.Linear(64, 32).eval(), (torch.randn(2, 64),)))
    monkeypatch.setattr(ProgramEditor, "__init__", counted)
    kept = WeightPrecision(Precision.INT8)
    _, record = transform([prepared], Settings(target=target_named("cpu"), kept=kept))
    assert len(copies) == 1
    assert [cost.parameter for cost in record.passes[0].rounding] == ["weight"]
    assert record.passes[0].records[0].name == "decompose_stft"  # none of export's had to do


def test_a_program_is_copied_once_for_a_list(
    program: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many passes there are."""
    copies: list[object] = []
    made = ProgramEditor.__init__

    def counted(self: ProgramEditor, *arguments: Any, **keywords: Any) -> None:
        copies.append(self)
        made(self, *arguments, **keywords)

    monkeypatch.setattr(ProgramEditor, "__init__", counted)
    before = [str(n) for n in program.graph.nodes]
    _, log = run_passes(program, target="metal")
    assert len(log.records) > 10
    assert len(copies) == 1
    assert [str(n) for n in program.graph.nodes] == before


def test_cat_linear_is_off_where_it_was_not_measured() -> None:
    """Its cost model speaks for the CPU alone."""
    assert [n for n, t in all_targets().items() if "fuse_cat_linear" in t.passes] == ["cpu"]


def test_unknown_pass_is_a_usage_error(program: torch.export.ExportedProgram) -> None:
    """A misspelt pass is named, with those that exist."""
    with pytest.raises(UsageError, match=r"no pass 'fold_batchnorm'.*fold_batch_norm"):
        run_passes(program, ["fold_batchnorm"])


def test_unknown_option_is_a_usage_error(program: torch.export.ExportedProgram) -> None:
    """An option that a pass does not take is named."""
    with pytest.raises(UsageError, match="epsilon"):
        run_passes(program, [PassChoice(name="fold_batch_norm", options={"epsilon": 1.0})])


def test_modified_is_computed_not_claimed(program: torch.export.ExportedProgram) -> None:
    """A pass that only talks about changes has modified nothing."""

    class Boaster(_Named):
        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            journal.changed("everything")

    result, record = Boaster()(program)
    assert result is program
    assert not record.modified
    assert record.nodes_before == record.nodes_after


def test_a_changed_argument_counts_as_modified(program: torch.export.ExportedProgram) -> None:
    """1 and 1.0 and True are different arguments: each change is seen."""

    class Swap(_Named):
        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            add = editor.calls(torch.ops.aten.add.Tensor)[0]
            add.args = (add.args[0], True)

    _, record = Swap()(program)
    assert record.modified


def test_crash_in_a_pass_names_the_pass(program: torch.export.ExportedProgram) -> None:
    """Whatever a pass raises comes out as one PassError with its name."""

    class Broken(_Named):
        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            raise KeyError("gone")

    with pytest.raises(PassError, match="pass test_pass: failed"):
        Broken()(program)


def test_wrong_weight_shape_is_caught_after_the_pass(program: torch.export.ExportedProgram) -> None:
    """The graph check compares every constant with what its placeholder claims."""

    class Reshaper(_Named):
        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            node = next(n for n in editor.graph.nodes if editor.constant(n) is not None)
            claimed = node.meta["val"]
            editor.set_constant(node, torch.zeros(7, 7))
            node.meta["val"] = claimed

    with pytest.raises(PassError, match=r"claims model|claims linear"):
        Reshaper()(program)


def test_node_without_a_value_is_caught(program: torch.export.ExportedProgram) -> None:
    """A call that a pass made without metadata fails the check, not the lowering."""
    add = next(n for n in program.graph.nodes if n.target is torch.ops.aten.add.Tensor)
    del add.meta["val"]
    with pytest.raises(PassError, match=r"a stage: left a malformed graph .*missing val"):
        check_program(program, "a stage")


def test_new_nodes_say_where_they_come_from(program: torch.export.ExportedProgram) -> None:
    """A node made by the editor has a fake value, a module path and a source line."""
    editor = ProgramEditor(program)
    relu = editor.calls(torch.ops.aten.relu.default)[0]
    node = editor.call(torch.ops.aten.neg.default, relu, like=relu)
    assert tuple(node.meta["val"].shape) == (4, 2)
    assert node.meta["stack_trace"] == relu.meta["stack_trace"]
    assert node.meta["nn_module_stack"] == relu.meta["nn_module_stack"]


def test_replacing_an_output_keeps_the_signature_true(
    program: torch.export.ExportedProgram,
) -> None:
    """When the returned node is replaced the program returns the new one."""

    class Negate(_Named):
        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            add = editor.calls(torch.ops.aten.add.Tensor)[0]
            fresh = editor.call(torch.ops.aten.sub.Tensor, add.args[0], 1, like=add)
            editor.replace(add, fresh)

    x = torch.randn(4, 3)
    result, record = Negate()(program)
    assert record.modified
    torch.testing.assert_close(result.module()(x), program.module()(x) - 2)
