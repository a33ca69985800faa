"""Random legal chains: whatever PointwiseAffineToConv rewrites, eager's numbers come out.

The same chains go through every other pass, and through the lists of all targets.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tests.examples import examples
from transforms import available_passes, run_passes
from transforms.passes.pointwise_affine_to_conv import PointwiseAffineToConv
from transforms.pipeline import passes_in
from transforms.targets import all_targets
from zoo.precision import WeightPrecision
from zoo.spec import PassChoice

_BATCH = 7  # the size that is dynamic; no other axis has a multiple of it

Step = tuple[Any, ...]
Steps = list[Step]


class _Replay(nn.Module):
    """Runs drawn steps; the weights are made by size, so equal sizes share them."""

    def __init__(self, steps: Steps, results: list[int]) -> None:
        super().__init__()
        self.steps, self.results = steps, results

    def forward(self, x: torch.Tensor) -> Any:
        values = [x + 0.5]
        for step in self.steps:
            values.append(self.apply_step(step, values))
        return [values[i] for i in self.results] + [values[-1]]

    def apply_step(self, step: Step, values: list[torch.Tensor]) -> torch.Tensor:
        kind, *how = step
        return getattr(self, f"_{kind}")(values[-1], values, *how)

    def _of(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A square weight and a vector, made at the first run in eager mode."""
        if not hasattr(self, f"w{size}"):
            draw = torch.Generator().manual_seed(size)
            weight = torch.randn(size, size, generator=draw) / size
            self.register_parameter(f"w{size}", nn.Parameter(weight))
            self.register_parameter(f"v{size}", nn.Parameter(torch.randn(size, generator=draw)))
        return getattr(self, f"w{size}"), getattr(self, f"v{size}")

    def _permute(self, y: Any, _: Any, order: list[int]) -> Any:
        return y.permute(order)

    def _transpose(self, y: Any, _: Any, one: int, other: int) -> Any:
        return y.transpose(one, other)

    def _flatten(self, y: Any, _: Any, start: int, end: int) -> Any:
        return y.flatten(start, end)

    def _unflatten(self, y: Any, _: Any, axis: int, size: int) -> Any:
        return y.unflatten(axis, (y.shape[axis] // size, size))

    def _unsqueeze(self, y: Any, _: Any, axis: int) -> Any:
        return y.unsqueeze(axis)

    def _squeeze(self, y: Any, _: Any, axis: int) -> Any:
        return y.squeeze(axis)

    def _copy(self, y: Any, _: Any, clone: bool) -> Any:
        return y.clone() if clone else y.contiguous()

    def _linear(self, y: Any, _: Any, bias: bool) -> Any:
        weight, vector = self._of(y.shape[-1])
        return F.linear(y, weight, vector if bias else None)

    def _product(self, y: Any, _: Any, left: bool) -> Any:
        weight, _vector = self._of(y.shape[-2 if left else -1])
        return torch.matmul(weight, y) if left else torch.matmul(y, weight)

    def _addmm(self, y: Any, _: Any, alpha: float, beta: float) -> Any:
        weight, vector = self._of(y.shape[-1])
        rows = y.reshape(-1, y.shape[-1])
        return torch.addmm(vector, rows, weight, alpha=alpha, beta=beta).view(y.shape)

    def _activate(self, y: Any, _: Any, name: str) -> Any:
        if name == "gelu":
            return F.gelu(y, approximate="tanh")
        if name == "leaky":
            return F.leaky_relu(y, negative_slope=0.3)
        return torch.clamp(y, min=-0.7)

    def _constant(self, y: Any, _: Any, axis: int, alpha: float) -> Any:
        vector = self._of(y.shape[axis])[1]
        return torch.add(y, vector.reshape(-1, *[1] * (y.dim() - 1 - axis)), alpha=alpha)

    def _norm(self, y: Any, _: Any, affine: bool) -> Any:
        vector = self._of(y.shape[-1])[1] if affine else None
        return F.layer_norm(y, (y.shape[-1],), vector, vector)

    def _residual(self, y: Any, values: Any, other: int) -> Any:
        return y - values[other]

    def _joined(self, y: Any, values: Any, other: int) -> Any:
        weight, vector = self._of(y.shape[-1])
        return F.linear(torch.cat([y, values[other]], -1), torch.cat([weight, weight], 1), vector)

    def _mixed(self, y: Any, values: Any, other: int) -> Any:
        return (y + values[other].double()).float()

    def _write(self, y: Any, values: Any, other: int) -> Any:
        values[other].mul_(0.5)
        return y * 1.5

    def _positions(self, y: Any, _: Any, name: str, axis: int) -> Any:
        return y.flip(axis) if name == "flip" else y.roll(1, axis)

    def _there_and_back(self, y: Any, _: Any, order: list[int], rows: bool, inner: Steps) -> Any:
        """Permute, maybe join all axes but the last, do the inner steps, and undo both."""
        moved = y.permute(order)
        values = [moved.reshape(-1, moved.shape[-1]) if rows else moved]
        for step in inner:
            values.append(self.apply_step(step, values))
        back = sorted(range(len(order)), key=order.__getitem__)
        return values[-1].reshape(moved.shape).permute(back)


def _fixed(size: int) -> bool:
    return size % _BATCH != 0


_LAYOUT = ("permute", "transpose", "flatten", "unflatten", "unsqueeze", "squeeze", "copy")
_MAPS = ("linear", "product", "addmm", "activate", "constant", "norm")
_OTHER = ("residual", "mixed", "write", "positions")


def _step(draw: Any, values: list[torch.Tensor], kind: str) -> Step | None:  # noqa: C901, PLR0912
    """One step of a kind that the last value allows."""
    y = values[-1]
    rank, axes = y.dim(), st.integers(0, y.dim() - 1)
    match kind:
        case "permute":
            return (kind, draw(st.permutations(range(rank))))
        case "transpose":
            return (kind, draw(axes) - rank, draw(axes))
        case "flatten" if rank > 1:
            start = draw(st.integers(0, rank - 2))
            return (kind, start, draw(st.integers(start + 1, rank - 1)))
        case "unflatten" if rank < 5:
            axis = draw(axes)
            size = draw(st.sampled_from([2, 3]))
            return (kind, axis, size) if y.shape[axis] % size == 0 else None
        case "unsqueeze" if rank < 5:
            return (kind, draw(axes))
        case "squeeze" if rank > 2:
            axis = draw(axes)
            return (kind, axis) if y.shape[axis] == 1 else None
        case "copy" | "norm" | "linear" | "product" if kind == "copy" or _fixed(y.shape[-1]):
            wanted = draw(st.booleans())
            if kind == "product" and wanted and (rank < 2 or not _fixed(y.shape[-2])):
                return None
            return (kind, wanted)
        case "addmm" if _fixed(y.shape[-1]):
            return (kind, draw(st.sampled_from([1, 2.0])), draw(st.sampled_from([1, 0.5, 0])))
        case "activate":
            return (kind, draw(st.sampled_from(["gelu", "leaky", "clamp"])))
        case "constant":
            axis = draw(axes)
            return (kind, axis, draw(st.sampled_from([1, 2]))) if _fixed(y.shape[axis]) else None
        case "residual" | "mixed" | "joined" | "write":
            other = draw(st.integers(0, len(values) - 1))
            fits = kind == "write" or values[other].shape == y.shape
            fits = fits and (kind != "joined" or _fixed(y.shape[-1]))
            return (kind, other) if fits else None
        case "positions":
            return (kind, draw(st.sampled_from(["flip", "roll"])), draw(axes))
    return None


def _there_and_back(draw: Any, y: torch.Tensor, run: _Replay) -> Step | None:
    order = draw(st.permutations(range(y.dim())))
    if y.dim() > 2 and draw(st.booleans()):  # channels are the axis that is mapped
        order = [axis for axis in order if axis != 1] + [1]
    if not _fixed(y.shape[order[-1]]):
        return None
    rows = draw(st.booleans())
    moved = y.permute(order)
    values, inner = [moved.reshape(-1, moved.shape[-1]) if rows else moved], []
    for kind in ["linear", *draw(st.lists(st.sampled_from(_MAPS), max_size=3))]:
        step = _step(draw, values, kind)
        if step is not None:
            inner.append(step)
            values.append(run.apply_step(step, values))
    return ("there_and_back", order, rows, inner)


@st.composite
def _programs(draw: Any, kinds: tuple[str, ...]) -> tuple[_Replay, torch.Tensor, bool]:
    dynamic = draw(st.booleans())
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 4, 4]), min_size=2, max_size=3))
    x = torch.randn(_BATCH if dynamic else 4, *sizes, generator=torch.Generator().manual_seed(5))
    scratch = _Replay([], [])
    values, steps = [x + 0.5], []
    kinds = ("there_and_back",) * (len(kinds) // 2) + kinds
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6)):
        y = values[-1]
        step = (
            _there_and_back(draw, y, scratch)
            if kind == "there_and_back"
            else _step(draw, values, kind)
        )
        if step is None or max(y.shape) > 64:
            continue
        steps.append(step)
        with torch.no_grad():
            values.append(scratch.apply_step(step, values))
    results = draw(st.lists(st.integers(0, len(values) - 1), max_size=2))
    return _Replay(steps, results), x, dynamic


def _export(module: _Replay, x: torch.Tensor, *, dynamic: bool, core: bool | None) -> Any:
    """The program as exported, functional or in core ATen."""
    shapes = ({0: torch.export.Dim("batch", min=1, max=9)},) if dynamic else None
    module.eval()(x.clone())  # makes the weights
    program = torch.export.export(module, (x,), dynamic_shapes=shapes, strict=False)
    return program.run_decompositions(None if core else {}) if core is not None else program


def _assert_equal(result: Any, module: _Replay, x: torch.Tensor, *, dynamic: bool) -> None:
    """Compare with eager for the traced batch and, if it is dynamic, for others."""
    call = result.module()
    for batch in (1, 4, _BATCH) if dynamic else (x.shape[0],):
        y = torch.randn(batch, *x.shape[1:], generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            torch.testing.assert_close(call(y.clone()), module(y.clone()), rtol=2e-4, atol=1e-4)


def _check(module: _Replay, x: torch.Tensor, *, dynamic: bool, core: bool | None) -> bool:
    program = _export(module, x, dynamic=dynamic, core=core)
    result, record = PointwiseAffineToConv()(program)
    _assert_equal(result, module, x, dynamic=dynamic)
    return record.modified


def _check_all(module: _Replay, x: torch.Tensor, *, dynamic: bool, core: bool | None) -> None:
    """Every pass by itself, and the passes of each target one after another."""
    program = _export(module, x, dynamic=dynamic, core=core)
    for passes in _LISTS:
        result, _ = run_passes(program, passes)
        if result is not program:
            _assert_equal(result, module, x, dynamic=dynamic)
        assert result.range_constraints == program.range_constraints


_PARTED = PassChoice(name="fuse_cat_linear", options={"gate": "open"})
_LISTS = (
    *[(name,) for name in available_passes()],
    (_PARTED,),
    *[(_PARTED, *passes_in(WeightPrecision(), None, t)) for t in all_targets().values()],
)
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_SPELT = st.sampled_from([None, False, True])  # as exported, functional, core ATen


@settings(max_examples=examples(10, 25), deadline=None, suppress_health_check=_SLOW)
@given(program=_programs(_MAPS), core=_SPELT)
def test_permuted_maps_equal_eager(program: Any, core: Any) -> None:
    """Maps, norms and constants between a permutation and its inverse, equal sizes on purpose."""
    module, x, dynamic = program
    event(f"modified: {_check(module, x, dynamic=dynamic, core=core)}")


@settings(max_examples=examples(12, 500), deadline=None, suppress_health_check=_SLOW)
@given(program=_programs((*_LAYOUT, *_MAPS, *_OTHER)), core=_SPELT)
def test_any_chain_equals_eager(program: Any, core: Any) -> None:
    """Any layout operators, extra users, residuals, writes and moved positions among them."""
    module, x, dynamic = program
    event(f"modified: {_check(module, x, dynamic=dynamic, core=core)}")


@settings(max_examples=examples(3, 200), deadline=None, suppress_health_check=_SLOW)
@given(program=_programs((*_LAYOUT, *_MAPS, *_OTHER, "joined", "joined")), core=_SPELT)
def test_every_pass_and_list_equals_eager(program: Any, core: Any) -> None:
    """Each pass alone, and each target's list behind a parted concatenation, with any batch."""
    module, x, dynamic = program
    _check_all(module, x, dynamic=dynamic, core=core)
