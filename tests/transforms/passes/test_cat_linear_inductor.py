"""The pre-grad pass for torch.compile: compiled results and gradients equal eager's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._inductor.config
from torch.nn import functional as F

from transforms.passes.fuse_cat_linear import CatLinearPreGradPass, cat_linear_pre_grad_pass

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch itself warns of while compiling

_A = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
_B = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
_W = torch.randn(6, 7, generator=torch.Generator().manual_seed(2))
_BIAS = torch.randn(6, generator=torch.Generator().manual_seed(3))


def _traced(
    body: Callable[..., Any], *inputs: torch.Tensor, ungated: bool = True, dynamic: bool = False
) -> tuple[list[str], Any]:
    """What the pass leaves of Dynamo's graph, by the operators' names; and what it computes."""
    names: list[str] = []

    def backend(module: Any, _: Any) -> Any:
        (CatLinearPreGradPass(gate="open") if ungated else cat_linear_pre_grad_pass)(module.graph)
        module.graph.lint()
        module.recompile()
        calls = [n for n in module.graph.nodes if n.op == "call_function"]
        names.extend(getattr(n.target, "__name__", "") for n in calls)
        return module.forward

    torch._dynamo.reset()
    if dynamic:
        for rows in inputs[:2]:
            torch._dynamo.mark_dynamic(rows, 0)
    return names, torch.compile(body, backend=backend)(*inputs)


def test_inductor_runs_it_and_gradients_are_right() -> None:
    """Installed in Inductor's configuration: forward and every gradient as in eager."""

    def body(a: Any, b: Any, w: Any, bias: Any) -> Any:
        return F.linear(torch.cat([a, b], dim=-1), w, bias).relu()

    torch._dynamo.reset()
    seen: list[int] = []

    class Watched(CatLinearPreGradPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            super().__call__(graph)
            seen.append(sum(n.target is F.linear for n in graph.nodes))

        def uuid(self) -> None:
            return None

    ours = [t.clone().requires_grad_() for t in (_A, _B, _W, _BIAS)]
    theirs = [t.clone().requires_grad_() for t in (_A, _B, _W, _BIAS)]
    with torch._inductor.config.patch(
        pre_grad_custom_pass=Watched(gate="open"), fx_graph_cache=False
    ):
        result = torch.compile(body)(*ours)
        result.sum().backward()
    expected = body(*theirs)
    expected.sum().backward()
    assert seen == [2]
    torch.testing.assert_close(result, expected)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("cat", [torch.cat, torch.concat, torch.concatenate])
def test_every_spelling_of_cat_is_parted(cat: Any, dynamic: bool) -> None:
    """Cat, concat and concatenate, by a negative axis or not, static or with dynamic rows."""
    body = lambda a, b, w, bias: F.linear(cat((a, b), -1), w, bias)  # noqa: E731
    names, result = _traced(body, _A.clone(), _B.clone(), _W, _BIAS, dynamic=dynamic)
    assert names == ["narrow", "linear", "narrow", "linear", "add"]
    torch.testing.assert_close(result, body(_A, _B, _W, _BIAS))


def _written_between(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = torch.cat((a, b), -1)
    a.add_(1)
    return F.linear(x, w)


_LEFT: dict[str, Callable[..., Any]] = {
    "other users": lambda a, b, w: F.linear(x := torch.cat((a, b), -1), w) + x.sum(),
    "written between": _written_between,
    "wrong axis": lambda a, _, w: F.linear(torch.cat((a, a), 0), w[:, :4]),
    "promoted": lambda a, b, w: F.linear(torch.cat((a, b.to(torch.float64)), -1), w.double()),
    "one part": lambda a, _, w: F.linear(torch.cat((a,), -1), w[:, :4]),
}


@pytest.mark.parametrize("case", _LEFT)
def test_left_alone_where_it_would_be_wrong(case: str) -> None:
    """What the pass cannot be certain of keeps its cat, and computes what eager does."""
    names, result = _traced(_LEFT[case], _A.clone(), _B, _W)
    assert any(name.startswith("cat") for name in names)
    torch.testing.assert_close(result, _LEFT[case](_A.clone(), _B, _W))


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_program_is_parted_before_autograd(dynamic: bool) -> None:
    """Its values are in meta["val"] and its operators are ATen's; new nodes say their values."""

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(7, 6)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(torch.cat((a, b), -1))
            return result

    module = Joined().eval()
    rows = ({0: torch.export.Dim("rows", max=64)},) * 2 if dynamic else None
    program = torch.export.export(module, (_A, _B), dynamic_shapes=rows, strict=False)
    graph_module = program.module(check_guards=False)
    ours = CatLinearPreGradPass(gate="open")
    ours(graph_module.graph)
    graph_module.graph.lint()
    graph_module.recompile()
    assert len(ours.journal.changes) == 1
    assert not any(n.target is torch.ops.aten.cat.default for n in graph_module.graph.nodes)
    calls = [n for n in graph_module.graph.nodes if n.op == "call_function"]
    assert all(n.meta["val"] is not None for n in calls)
    torch.testing.assert_close(graph_module(_A, _B), module(_A, _B))


def test_what_was_done_is_counted() -> None:
    """Rewrites and refusals are noted over all graphs, with the reason."""
    big, w = torch.zeros(80000, 64), torch.zeros(8, 128)
    ours = CatLinearPreGradPass()

    def backend(module: Any, _: Any) -> Any:
        ours(module.graph)
        module.recompile()
        return module.forward

    def body(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.cat((a, a), -1), w)

    for rows in (big, big[:5]):
        torch._dynamo.reset()
        torch.compile(body, backend=backend)(rows, w)
    assert len(ours.journal.changes) == 1
    [refusal] = ours.journal.refusals
    assert "stays in the caches" in refusal.reason


def test_gate_is_asked() -> None:
    """Small operands, and parts computed elementwise, are left alone by the default pass."""
    names, _ = _traced(
        lambda a, b, w: F.linear(torch.cat((a, b), -1), w), _A, _B, _W, ungated=False
    )
    assert "cat" in names
    big, w = torch.zeros(80000, 64), torch.zeros(8, 128)
    names, _ = _traced(lambda a, w: F.linear(torch.cat((a, a * 2), -1), w), big, w, ungated=False)
    assert "cat" in names
    names, _ = _traced(lambda a, w: F.linear(torch.cat((a, a), -1), w), big, w, ungated=False)
    assert "cat" not in names


def test_caches_distinguish_limits() -> None:
    """Inductor's caches key the pass by its code and its limits."""
    assert CatLinearPreGradPass().uuid() == cat_linear_pre_grad_pass.uuid()
    assert CatLinearPreGradPass(gate="open").uuid() != cat_linear_pre_grad_pass.uuid()
