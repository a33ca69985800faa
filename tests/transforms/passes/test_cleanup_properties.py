"""Random programs with copies, views, writes in place, constants and repeats, through every pass.

A program is a list of steps over a pool of square tensors: equal sizes on purpose, so that a
swapped axis keeps the shape. After each pass the outputs must equal eager's, inputs must have been
written alike, writing to one output must change the same other tensors as in eager, and every
node's metadata must be what running the node yields.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.examples import examples
from transforms.graph.graph_pass import check_program
from transforms.passes.fold_batch_norm import FoldBatchNorm
from transforms.passes.fold_constants import FoldConstants
from transforms.passes.merge_common_subexpressions import MergeCommonSubexpressions
from transforms.passes.remove_dead_code import RemoveDeadCode
from transforms.passes.remove_identity_permutes import RemoveIdentityPermutes
from transforms.passes.replace_view_copies import ReplaceViewCopies

aten = torch.ops.aten

_PASSES = (
    ReplaceViewCopies,
    FoldConstants,
    MergeCommonSubexpressions,
    RemoveIdentityPermutes,
    RemoveDeadCode,
    FoldBatchNorm,
)
_SIZE = 4

_VIEWS = (
    lambda x: x.permute(1, 0),
    lambda x: x.transpose(0, -1),
    lambda x: x.t().contiguous().t(),
    lambda x: x.reshape(2, 8).reshape(4, 4),
    lambda x: x.unsqueeze(1).squeeze(1),
    lambda x: x.unsqueeze(0).permute(0, 2, 1).squeeze(0),
    lambda x: x.contiguous(),
    lambda x: x.clone(),
    lambda x: x.expand(4, 4),
    lambda x: x[:],
    lambda x: x.permute(1, 0).relu().permute(1, 0),
    lambda x: x.t().mul(2).neg().t(),
)
_COPIES = (
    lambda x: aten.permute_copy(x, [1, 0]),
    lambda x: aten.transpose_copy(x, 0, 1),
    aten.t_copy,
    lambda x: aten.view_copy(x, [4, 4]),
    lambda x: aten.view_copy(aten.view_copy(x, [16]), [4, 4]),
    aten.alias_copy,
    aten.detach_copy,
    lambda x: aten.expand_copy(aten.slice_copy(x, 0, 1, 2), [4, 4]),
    lambda x: aten.expand_copy(aten.select_copy(x, 1, -1), [4, 4]),
    lambda x: torch.cat(aten.split_copy(x, 2), 1).reshape(4, 4),
    lambda x: torch.cat(aten.unbind_copy(x, 1)).reshape(4, 4),
    lambda x: aten.squeeze_copy(aten.unsqueeze_copy(x, 0)),
    lambda x: aten.as_strided_copy(x, [4, 4], [1, 4]),
    lambda x: aten.view_copy(aten.narrow_copy(torch.cat([x, x]), 0, 2, 4), [4, 4]),
)
_WRITES = (
    lambda x: x.add_(1),
    lambda x: x.mul_(2),
    lambda x: x[0].sub_(1),
    lambda x: x.t()[1:].neg_(),
    lambda x: x.relu_(),
)
_BINARY = (
    lambda x, y: x + y,
    lambda x, y: x @ y,
    lambda x, y: torch.add(y, torch.mm(x, y), alpha=2),
    lambda x, y: torch.mm(x, y).add(x[0], alpha=0.5),
    lambda x, y: torch.addmm(x, x, y, beta=2, alpha=0.5),
    nn.functional.linear,
    lambda x, y: nn.functional.linear(x, y, x[1]),
    lambda x, y: nn.functional.linear(x.unsqueeze(0), y).squeeze(0) + y[0],
    lambda x, y: torch.where(x > y, x, y),
)
_KINDS = {"view": _VIEWS, "copy": _COPIES, "write": _WRITES, "binary": _BINARY}


class _Program(nn.Module):
    """Interprets a drawn list of steps; the pool starts with two inputs and three constants."""

    def __init__(self, steps: list[tuple[str, int, int, int]], outputs: list[int]) -> None:
        super().__init__()
        self.steps, self.outputs = steps, outputs
        self.weight = nn.Parameter(torch.randn(_SIZE, _SIZE), requires_grad=False)
        self.register_buffer("buffer", torch.randn(_SIZE, _SIZE))

    def _twice(self, x: torch.Tensor, choice: int, write: int) -> list[torch.Tensor]:
        """The same call twice, with nothing written, or its operand between, or its result."""
        operation = (torch.exp, torch.neg, torch.t, lambda x: x * 2)[choice % 4]
        first = operation(x)
        if write % 4 == 1 and x is not self.weight:
            x.add_(1)
        second = operation(x)
        if write % 4 == 2:
            (first.clone() if first._is_view() else first).add_(1)
        return [first, second]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pool = [x, y, self.weight, self.buffer, torch.eye(_SIZE) * 3]
        for kind, choice, one, other in self.steps:
            operands = [pool[one % len(pool)]]
            if kind == "twice":
                pool += self._twice(operands[0], choice, other)
                continue
            operation = _KINDS[kind][choice % len(_KINDS[kind])]
            if kind == "write" and operands[0] is self.weight:
                continue
            if kind == "binary":
                operands.append(pool[other % len(pool)])
            result = operation(*operands)
            if kind != "write":
                pool.append(result)
        return tuple(pool[-1 - index % len(pool)] for index in self.outputs)


def _observe(
    call: Any, inputs: tuple[torch.Tensor, ...], state: list[torch.Tensor]
) -> list[torch.Tensor]:
    """All a caller can see of a second call, the first one's traces in the state included.

    That is: outputs, inputs after, and both again after each output is written.
    """
    kept = [tensor.detach().clone() for tensor in state]
    call(*[tensor.clone() for tensor in inputs])
    inputs = tuple(tensor.clone() for tensor in inputs)
    outputs = call(*inputs)
    seen = [tensor.clone() for tensor in (*outputs, *inputs)]
    for number, output in enumerate(outputs):
        if 0 in output.stride():
            continue  # a tensor that overlaps itself cannot be written
        output.add_(number + 1)
        seen += [tensor.clone() for tensor in (*outputs, *inputs)]
    for tensor, value in zip(state, kept, strict=True):
        tensor.data.copy_(value)
    return seen


def _assert_metadata(program: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """Every node's fake value has the sizes, strides and dtype that running the node yields."""

    class Checker(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            claimed = n.meta.get("val")
            if n.op == "call_function" and isinstance(result, torch.Tensor):
                assert (claimed.shape, claimed.dtype) == (result.shape, result.dtype), n.name
                assert claimed.stride() == result.stride(), n.name
            return result

    flat = []
    given = iter(inputs)
    for spec in program.graph_signature.input_specs:
        constants = {**program.constants, **program.state_dict}
        value = next(given) if spec.target is None else constants[spec.target]
        flat.append(value.detach().clone())
    Checker(program.graph_module).run(*flat)


def _steps(kinds: list[str], most: int) -> Any:
    index = st.integers(0, 40)
    return st.lists(st.tuples(st.sampled_from(kinds), index, index, index), max_size=most)


_OUTPUTS = st.lists(st.integers(0, 40), min_size=1, max_size=3, unique=True)


def _check(steps: Any, outputs: Any, stage: str) -> None:
    torch.manual_seed(0)
    module = _Program(steps, outputs).eval()
    inputs = (torch.randn(_SIZE, _SIZE), torch.randn(_SIZE, _SIZE))
    program = torch.export.export(module, inputs, strict=False)
    if stage != "training":
        program = program.run_decompositions({} if stage == "functional" else None)
    state = [module.weight, module.buffer, *program.constants.values()]
    eager = _observe(module, inputs, state)
    if any(n.target._schema.is_mutable for n in program.graph.nodes if n.op == "call_function"
           and isinstance(n.target, torch._ops.OpOverload)):  # fmt: skip
        expected = _observe(program.run_decompositions({}).module(), inputs, state)
    else:
        expected = eager if stage == "training" else _observe(program.module(), inputs, state)
    values = len(outputs) + len(inputs)
    torch.testing.assert_close(expected[:values], eager[:values])
    for graph_pass in _PASSES:
        rewritten, _ = graph_pass()(program)
        check_program(rewritten, graph_pass.name)
        got = _observe(rewritten.module(), inputs, [*state, *rewritten.state_dict.values()])
        for number, (one, other) in enumerate(zip(got, expected, strict=True)):
            torch.testing.assert_close(
                one, other, rtol=1e-4, atol=1e-3, msg=f"{graph_pass.name}, observation {number}"
            )
        _assert_metadata(rewritten, inputs)


@pytest.mark.sweep
@settings(max_examples=400, deadline=None)
@given(
    _steps(["view", "copy", "binary", "write", "twice"], 12),
    _OUTPUTS,
    st.sampled_from(["training", "functional", "core"]),
)
def test_sweep(steps: Any, outputs: Any, stage: str) -> None:
    """The same promises over many more and longer programs."""
    _check(steps, outputs, stage)


@settings(max_examples=examples(12, 30), deadline=None)
@given(_steps(["view", "copy", "binary", "write", "twice"], 8), _OUTPUTS)
def test_training_programs_with_writes(steps: Any, outputs: Any) -> None:
    """Aliasing writes are seen exactly where eager shows them, whatever a pass replaced."""
    _check(steps, outputs, "training")


@settings(max_examples=15, deadline=None)
@given(
    _steps(["view", "copy", "binary", "twice"], 10),
    _OUTPUTS,
    st.sampled_from(["functional", "core"]),
)
def test_functional_programs(steps: Any, outputs: Any, stage: str) -> None:
    """Decomposed programs compute and share memory as before."""
    _check(steps, outputs, stage)
