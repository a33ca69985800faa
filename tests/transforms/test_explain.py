"""Explaining: what each pass changed and refused, with honest counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transforms import Program, run_passes
from transforms.export.prepare import prepare_module
from transforms.passes.fold_batch_norm import FoldBatchNorm
from transforms.pipeline import Explanation, OperatorCount, explain_program, make_passes, passes_in
from zoo.errors import UsageError
from zoo.precision import WeightPrecision
from zoo.spec import PassChoice


class _TwoNorms(nn.Module):
    """One normalisation that folds, and one whose convolution has another user."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (batch, 3, height, width)."""
        y = torch.relu(self.norm(self.conv(x)))
        z = self.conv2(y)
        return self.norm2(z) + z


def _program() -> torch.export.ExportedProgram:
    module = _TwoNorms().eval()
    return torch.export.export(module, (torch.randn(1, 3, 6, 6),), strict=False)


@pytest.mark.parametrize(("target", "last"), [("cpu", []), ("metal", ["move_to_device"])])
def test_export_and_lowering_are_in_the_list(target: str, last: list[str]) -> None:
    """Their passes too, each with a line of what it does: no rewrite is made beside the list."""
    module = nn.Sequential(nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2)).eval()
    prepared = prepare_module("main", Program(module, (torch.randn(3, 2, 4),)))
    program, exported = prepared.program, prepared.passes
    _, found = explain_program("main", program, target=target, exported=exported)
    names = [step.record.name for step in found.passes]
    first = ["call_views", "keep_plain_state", "look_up_tensor_indices"]
    first += ["trace_functional", "drop_assertions", "round_to_halves"]
    own = [each.name for each in make_passes(passes_in(WeightPrecision(), None, target))]
    assert names == [*first, *own, *last]
    assert all(step.summary.startswith("Replaces ") for step in found.passes[:6])
    seen = [(each.record.nodes_before, each.record.nodes_after) for each in found.passes]
    ends = [found.nodes_before, *(after for _, after in seen)]
    assert [before for before, _ in seen] + [found.nodes_after] == ends  # no row leaves one out


def test_changes_refusals_and_counts_of_a_pass_are_reported() -> None:
    """One fold, one refusal with its reason, and the operators that became fewer."""
    result, found = explain_program("main", _program(), ["fold_batch_norm"])
    step = found.passes[0]
    assert step.summary == FoldBatchNorm.summary
    assert len(step.record.changes) == 1
    assert "other users" in step.record.refusals[0].reason
    assert step.operators == (OperatorCount(operator="aten.batch_norm.default", before=2, after=1),)
    assert found.nodes_before == len(_program().graph.nodes)
    assert found.nodes_after == len(result.graph.nodes)


def test_histogram_covers_every_call() -> None:
    """The counts before and after add up to the calls of either program."""
    program = _program()
    result, found = explain_program("main", program, ["fold_batch_norm"])
    calls = [sum(n.op == "call_function" for n in p.graph.nodes) for p in (program, result)]
    assert [sum(c.before for c in found.operators), sum(c.after for c in found.operators)] == calls
    largest = [max(c.before, c.after) for c in found.operators]
    assert largest == sorted(largest, reverse=True)


def test_result_is_that_of_running_all_passes_at_once() -> None:
    """Explaining goes the same way as converting."""
    program = _program()
    result, found = explain_program("main", program)
    expected, log = run_passes(program)
    assert [str(n.target) for n in result.graph.nodes] == [
        str(n.target) for n in expected.graph.nodes
    ]
    seen = [step.record.model_copy(update={"seconds": 0.0}) for step in found.passes]
    assert seen == [r.model_copy(update={"seconds": 0.0}) for r in log.records]


def test_explanation_of_a_model_survives_json() -> None:
    """Programs keep their order and names; the record can be written and read back."""
    program = _program()
    programs = tuple(explain_program(name, program)[1] for name in ("encoder", "decoder"))
    found = Explanation(model="two_norms", target="cpu", programs=programs)
    assert [p.program for p in found.programs] == ["encoder", "decoder"]
    assert Explanation.model_validate_json(found.model_dump_json()) == found


def test_empty_list_of_passes_leaves_all_as_it_is() -> None:
    """Without passes nothing is said and nothing differs."""
    program = _program()
    result, found = explain_program("main", program, [])
    assert result is program
    assert found.passes == ()
    assert all(c.before == c.after for c in found.operators)


@pytest.mark.parametrize("choice", ["no_such_pass", PassChoice(name="no_such_pass")])
def test_unknown_pass_is_the_callers_mistake(choice: str | PassChoice) -> None:
    """A pass that does not exist is refused by name."""
    with pytest.raises(UsageError, match="no_such_pass"):
        explain_program("main", _program(), [choice])


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.conv(x).relu(), x.sin()


def test_dispatches_of_a_metal_program_are_counted_by_kind() -> None:
    """A convolution with its activation, and a function beside it; a CPU launches none."""
    program = torch.export.export(_Two().eval(), (torch.randn(2, 3, 9, 9),), strict=False)
    found = {t: explain_program("main", program, target=t)[1].dispatches for t in ("cpu", "metal")}
    assert found == {"cpu": {}, "metal": {"finished_convolution": 1, "generated": 1}}
