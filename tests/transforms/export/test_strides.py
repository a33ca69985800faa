"""Examples as people have them, with strides of any kind: an artifact takes plain arrays."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from menagerie.session import Session
from tests.pieces import assert_as_eager
from transforms import Program, convert
from transforms.export import trace
from transforms.export.prepare import prepare_module
from transforms.goldens.examples import rows_apart
from zoo.errors import ExportError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from transforms.converter import ConvertedBundle
    from transforms.export.prepare import Prepared

_PICTURE, _ROWS = (2, 3, 6, 8), (3, 4, 6)
_FLOAT, _INDEX, _MASK = torch.float32, torch.int64, torch.bool
_Shape = tuple[int, ...]


class _Dozen(nn.Module):
    """A dozen modules side by side, an input each: one library shows the strides of all."""

    INPUTS: tuple[tuple[_Shape, torch.dtype], ...] = (
        *[(_PICTURE, _FLOAT)] * 5, *[(_ROWS, _FLOAT)] * 5, ((3, 4), _INDEX), (_ROWS, _MASK),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.linear, self.norm = nn.Linear(6, 5), nn.LayerNorm(6)
        self.table, self.lstm = nn.Embedding(5, 3), nn.LSTM(6, 2, batch_first=True)

    def forward(self, *x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The result of each."""
        return (
            self.convolution(x[0]),
            F.pad(x[1], (0, 1, 0, 1)),
            F.max_pool2d(x[2], 2),
            F.interpolate(x[3], scale_factor=2.0),
            x[4].flatten(1).cumsum(1),
            self.linear(x[5]),
            self.norm(x[6]),
            torch.softmax(x[7] @ x[7].transpose(1, 2), -1),
            self.lstm(x[8])[0],
            torch.cat([x[9].sum(1), x[9].roll(1, 0)[:, 0]]),
            self.table(x[10]),
            torch.where(x[11], x[9], -x[9]),
        )


def _drawn(shape: _Shape, dtype: torch.dtype) -> torch.Tensor:
    if dtype is _INDEX:
        return torch.randint(5, shape)
    return torch.rand(shape) > 0.5 if dtype is _MASK else torch.randn(shape)


@st.composite
def _laid_out(draw: st.DrawFn, shape: _Shape, dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose axes are in any order, expanded, or with gaps, somewhere in its memory."""
    axes = range(len(shape))
    expanded = draw(st.sets(st.sampled_from(axes), max_size=1))
    strides, step = [0] * len(shape), 1
    for axis in draw(st.permutations(axes)):
        if axis not in expanded:
            strides[axis] = step * draw(st.integers(1, 2))
            step = strides[axis] * shape[axis]
    offset = draw(st.integers(0, 5))
    return _drawn((offset + step,), dtype).as_strided(shape, strides, offset)


def _run(
    bundle: ConvertedBundle, inputs: tuple[torch.Tensor, ...], *, plain: bool
) -> list[torch.Tensor]:
    with Session(bundle.folder) as session:
        arrays = [value.contiguous().numpy() if plain else value.numpy() for value in inputs]
        names = [tensor.name for tensor in session.inputs]
        results = session.run(dict(zip(names, arrays, strict=True)))
    return [torch.from_numpy(result) for result in results.values()]


def _check(bundle: ConvertedBundle, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        expected = module(*inputs)
    for plain in (True, False):
        for found, value in zip(_run(bundle, inputs, plain=plain), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)


@given(inputs=st.tuples(*(_laid_out(*each) for each in _Dozen.INPUTS)))
@settings(max_examples=2, phases=[Phase.generate])
def test_examples_may_have_any_strides(inputs: tuple[torch.Tensor, ...]) -> None:
    """Whatever strides examples have, other values are right, in plain arrays and in such ones."""
    module = _Dozen().eval()
    others = tuple(_drawn(tuple(v.shape), v.dtype) for v in inputs)
    with tempfile.TemporaryDirectory() as folder:
        bundle = convert(module, inputs, out=Path(folder) / "made", measure_seconds=0)
        _check(bundle, module, others)
        _check(bundle, module, inputs)


class _Picture(nn.Module):
    """Looks at a picture by channels last, as code that was written for such does."""

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """By pixels, padded, and by rows."""
        y = torch.relu(x) * scale
        return y.permute(0, 2, 3, 1).reshape(-1, 3), F.pad(y, (0, 1)), y.flatten(1)


def _permuted(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 6, 8, 3).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("dynamic", "target"),
    [
        (True, "cpu"),
        (False, "metal"),
        pytest.param(False, "cpu", marks=pytest.mark.sweep),
        pytest.param(True, "metal", marks=pytest.mark.sweep),
    ],
)
def test_programs_exported_with_strides_are_made_plain(
    target: str, dynamic: bool, tmp_path: Path
) -> None:
    """An ExportedProgram of a permuted picture and an expanded factor, its sizes as they were."""
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=5)}, "scale": None} if dynamic else None
    keywords = {"scale": torch.rand(1).expand(8)}
    program = torch.export.export(
        _Picture(), (_permuted(),), keywords, strict=False, dynamic_shapes=sizes
    )
    if target == "metal":
        program = program.run_decompositions({})  # its reshapes are views then
    bundle = convert(program, target=target, out=tmp_path / "made", measure_seconds=0)
    picture, scale = torch.randn(5 if dynamic else 2, 3, 6, 8), torch.rand(8)
    found = _run(bundle, (picture, scale), plain=True)
    for result, expected in zip(found, _Picture()(picture, scale=scale), strict=True):
        torch.testing.assert_close(result, expected)


def test_a_view_that_only_an_examples_strides_allow_is_said(tmp_path: Path) -> None:
    """Eager takes it for the example; it would refuse what the artifact is given."""

    class View(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.permute(0, 2, 3, 1).view(-1, 3) + 1

    with pytest.raises(ExportError, match=r"[Cc]annot view.*whatever strides.*use \.reshape"):
        convert(View(), (_permuted(),), out=tmp_path / "made")


class _Sums(nn.Module):
    """Keeps what it saw in a buffer that is not plain."""

    kept: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(12.0).view(3, 4).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all so far, with the first state."""
        self.kept += x
        return self.kept * 2


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_state_may_have_strides(target: str, tmp_path: Path) -> None:
    """A transposed buffer that calls write is kept as an artifact keeps all: plain."""
    bundle = convert(
        _Sums().eval(), (torch.ones(1, 3),), target=target, out=tmp_path / "made", measure_seconds=0
    )
    with Session(bundle.folder) as session:
        for call in (1, 2):
            [found] = session.run({"x": np.ones((1, 3), np.float32)}).values()
            np.testing.assert_array_equal(found, (np.arange(12.0).reshape(3, 4).T + call) * 2)


class _RowSums(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of each row."""
        return x.float().sum(1)


def _first_inputs(prepared: Prepared) -> list[torch.Tensor]:
    return [next(iter(case.inputs.values())) for case in prepared.goldens]


@pytest.mark.parametrize(
    "example",
    [
        torch.arange(16).expand(2, -1),
        torch.randn(4, 1).expand(4, 3),
        torch.tensor([[True, True, False]]).expand(2, -1),
    ],
)
def test_rows_of_an_expanded_example_differ_in_a_golden_case(example: torch.Tensor) -> None:
    """The first case is what was given; the last has some of its values, and a mask as many."""
    first, last = _first_inputs(prepare_module("main", Program(_RowSums(), (example,))))
    assert torch.equal(first, example)
    assert first.is_contiguous()
    repeated = example.stride().index(0)
    rows = last.unbind(repeated)
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(rows))
    assert set(last.flatten().tolist()) <= set(example.flatten().tolist())
    if example.dtype is torch.bool:
        assert torch.equal(last.sum(1), example.sum(1))


@pytest.mark.parametrize(
    "example",
    [torch.zeros(()).expand(2, 3), torch.ones(2, 3), torch.zeros(1, 3).expand(2, 3)[:0]],
)
def test_examples_with_nothing_to_roll_stay(example: torch.Tensor) -> None:
    """One value alone, no expansion, no element: there are no other rows to be had."""
    assert rows_apart(example) is example


def test_the_proof_finds_code_for_the_strides_of_an_expanded_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as it is laid out, each row would be read as the first: not proven."""
    as_given: Callable[[torch.Tensor], torch.Tensor] = lambda value: value  # noqa: E731
    monkeypatch.setattr(trace, "plain", as_given)
    example = torch.randn(16).expand(2, -1)
    with pytest.raises(ValidationError, match="golden case 1: max abs error"):
        convert(_RowSums(), (example,), out=tmp_path / "made", measure_seconds=0)


class _OddBuffers(nn.Module):
    """A buffer of one element cut out of others, and one that is computed with in other strides."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: torch.Tensor
        self.table: torch.Tensor
        self.register_buffer("scale", torch.arange(4.0)[::2][1:])
        self.register_buffer("table", torch.arange(12, dtype=torch.int32).reshape(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + (self.table.t() + 1).float()


def test_buffers_of_any_strides(tmp_path: Path) -> None:
    """What is computed of them is stored row after row, whatever torch asserts on the way."""
    made = convert(
        _OddBuffers().eval(), (torch.ones(4, 3),), out=tmp_path / "out", measure_seconds=0
    )
    assert_as_eager(made.folder, _OddBuffers(), (torch.ones(4, 3),))
