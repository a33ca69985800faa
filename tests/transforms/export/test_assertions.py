"""Sizes that torch.export gives up on: tried one by one, and either proven or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from menagerie.errors import SessionError
from menagerie.session import Session
from tests.pieces import assert_as_eager
from transforms import convert
from transforms.export.trace import trace
from zoo.errors import ExportError

if TYPE_CHECKING:
    from pathlib import Path


class _GroupedStep(nn.Module):
    """A step of attention whose two heads of keys serve four of queries, as Llama's do."""

    def forward(self, query: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        """(batch, 4, 1, 8), of queries (batch, 4, 1, 8) and keys (batch, 2, length, 8)."""
        keys = torch.cat([past, query[:, :2]], 2)
        batch, heads, length, size = keys.shape
        wide = keys[:, :, None].expand(batch, heads, 2, length, size)
        wide = wide.reshape(batch, 2 * heads, length, size)
        made: torch.Tensor = nn.functional.scaled_dot_product_attention(query, wide, wide)
        return made


def test_a_cache_that_grows_is_dynamic_though_its_heads_are_grouped(tmp_path: Path) -> None:
    """torch.export refuses this length; the artifact is eager's at lengths never seen."""
    torch.manual_seed(0)
    batch, length = Dim("batch", min=1, max=3), Dim("length", min=2, max=24)
    module, query, past = _GroupedStep().eval(), torch.randn(2, 4, 1, 8), torch.randn(2, 2, 6, 8)
    shapes = ({0: batch}, {0: batch, 2: length})
    with pytest.raises(torch._dynamo.exc.UserError, match="Constraints violated"):
        torch.export.export(module, (query, past), dynamic_shapes=shapes, strict=False)
    made = convert(
        module, (query, past), dynamic_shapes=shapes, out=tmp_path / "out", measure_seconds=0
    )
    for rows, steps in ((1, 2), (3, 17), (2, 24)):
        query, past = torch.randn(rows, 4, 1, 8), torch.randn(rows, 2, steps, 8)
        assert_as_eager(made.folder, module, (query, past), atol=1e-6)


class _Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] % 5 != 3 else x - 1


def test_a_size_at_which_the_program_is_another_is_named() -> None:
    """The first such size, where it is an axis of, and what does not hold there."""
    shapes = ({0: Dim("rows", min=1, max=9)},)
    with pytest.raises(ExportError, match=r"another program at axis 0 of x = 3: .*Mod") as caught:
        trace("program main", _Branching(), (torch.ones(2, 3),), shapes=shapes)
    assert "Narrow the range of axis 0 of x" in str(caught.value)
    fit = ({0: Dim("rows", min=4, max=7)},)
    program = trace("program main", _Branching(), (torch.ones(5, 3),), shapes=fit)
    x = torch.randn(7, 3)
    assert torch.equal(program.module()(x), x + 1)


class _Halved(nn.Module):
    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned = turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = nn.functional.max_pool2d(x, 2, ceil_mode=True)
        return half + half.mT if self.turned else half.flatten(1).unflatten(1, (-1, 4)).sum(-1)


@pytest.mark.parametrize(
    ("turned", "advice"),
    [
        (True, ["or give all one Dim: it holds where they are equal"]),
        (
            False,
            [
                f"axis {axis} of x: it holds of multiples of 8, 8 * Dim(..., min=2, max=5)"
                for axis in (1, 2)
            ],
        ),
    ],
)
def test_what_fits_is_said_of_each_of_two_sizes(turned: bool, advice: list[str]) -> None:
    """Whatever the other is, or of both together."""
    shapes = ({1: Dim("height", min=4, max=40), 2: Dim("width", min=4, max=40)},)
    with pytest.raises(ExportError, match="is another program at axis") as caught:
        trace("program main", _Halved(turned), (torch.ones(4, 8, 8),), shapes=shapes)
    assert [each for each in advice if each not in str(caught.value)] == []


@pytest.mark.sweep
def test_two_sizes_of_a_picture_are_tried_together(tmp_path: Path) -> None:
    """Four million pairs: what holds of all converts, and of others is said which would do."""
    module, x = _Halved(turned=False).eval(), torch.ones(4, 64, 64)
    high, wide = Dim("high", min=32, max=2048), Dim("wide", min=32, max=2048)
    with pytest.raises(ExportError, match=r"8 \* Dim\(..., min=4, max=256\) or axis 2 of x: it"):
        trace("program main", module, (x,), shapes=({1: high, 2: wide},))
    fit, wide = Dim("eights", min=4, max=16), Dim("wide", min=32, max=256)
    made = convert(
        module, (x,), dynamic_shapes=({1: 8 * fit, 2: wide},), out=tmp_path / "out",
        measure_seconds=0, tolerances={"float32": 1e-4},
    )  # fmt: skip
    assert_as_eager(made.folder, module, (torch.randn(4, 40, 201),), atol=1e-5)


def test_a_range_too_wide_to_try_is_refused() -> None:
    """More sizes than can be tried in reason: said so, with what is unknown of them."""
    shapes = ({0: Dim("rows", min=4, max=20_000_000)},)
    with pytest.raises(
        ExportError, match=r"all sizes: they are too many\. Narrow the range of axis 0"
    ):
        trace("program main", _Branching(), (torch.ones(5, 3),), shapes=shapes)


class _Framed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = (x.shape[0] - 400) // 320 + 1
        return x + 1 if 1 % frames != 0 else x - 1


def test_what_holds_for_all_numbers_of_frames_holds_for_all_samples() -> None:
    """Samples by the hundred thousand, and all of them are tried."""
    shapes = ({0: Dim("samples", min=720, max=480_000)},)
    program = trace("program main", _Framed(), (torch.ones(1000),), shapes=shapes)
    for samples in (720, 16_001, 480_000):
        x = torch.randn(samples)
        assert torch.equal(program.module()(x), x + 1)
    one_frame = ({0: Dim("samples", min=719, max=480_000)},)
    with pytest.raises(ExportError, match=r"another program at axis 0 of x = 719: .*from 720 to 4"):
        trace("program main", _Framed(), (torch.ones(1000),), shapes=one_frame)


class _Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[1] // 2
        return x[:, :half] + x[:, half:]


@pytest.mark.parametrize(
    ("low", "says"),
    [
        (2, r"Ne\(\(x.shape\[1\]//2\), 1\) does not hold there.*it holds from 4 to 64"),
        (4, r"multiples of 2, 2 \* Dim\(..., min=2, max=32\)"),
    ],
)
def test_what_would_do_is_said_where_a_size_does_not(tmp_path: Path, low: int, says: str) -> None:
    """Halves are added only where there are two equal ones, and of one element they broadcast."""
    shapes = ({1: Dim("n", min=low, max=64)},)
    with pytest.raises(ExportError, match=says):
        convert(_Halves().eval(), (torch.ones(3, 8),), dynamic_shapes=shapes, out=tmp_path / "out")


class _Shifted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x[:, :-1], (1, 0))


def test_a_hole_near_an_end_leaves_the_sizes_beyond_it() -> None:
    """Two elements leave one to shift, which torch lays out in its own way; 3 to 40 all fit."""
    shapes = ({1: Dim("n", min=1, max=40)},)
    with pytest.raises(ExportError, match=r"at axis 1 of x = 2: .*it holds from 3 to 40$"):
        trace("program main", _Shifted(), (torch.ones(2, 9),), shapes=shapes)
    fit = ({1: Dim("n", min=3, max=40)},)
    assert trace("program main", _Shifted(), (torch.ones(2, 9),), shapes=fit).range_constraints


def test_sizes_that_no_dim_names_are_said() -> None:
    """The odd ones: they are no multiples of anything in so short a range."""

    class Overlapping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = (x.shape[1] + 1) // 2
            return x[:, :half] + x[:, half - 1 :]

    shapes = ({1: Dim("n", min=46, max=49)},)
    fact = r"another program at axis 1 of x = 4\d: .*axis 1 of x: it holds of no multiple of 2; "
    with pytest.raises(ExportError, match=fact):
        trace("program main", Overlapping(), (torch.ones(3, 47),), shapes=shapes)


class _Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(("unit", "taken"), [(1, "n from 1 to 8"), (2, "n from 4 to 16 by 2")])
def test_an_example_of_one_unit_is_refused_with_what_does(
    tmp_path: Path, unit: int, taken: str
) -> None:
    """A size of 1 is fixed to torch, the whole range of it from another example."""
    size = Dim("n", min=1, max=8)
    shapes, module = ({1: size if unit == 1 else unit * size},), _Doubled().eval()
    with pytest.raises(ExportError, match=r"Where the example has 1 there, or k of k \* Dim, give"):
        convert(module, (torch.ones(3, unit),), dynamic_shapes=shapes, out=tmp_path / "one")
    x = torch.ones(3, 4 * unit)
    assert convert(module, (x,), dynamic_shapes=shapes, out=tmp_path / "two").sizes == (taken,)


def test_a_bundle_says_the_sizes_that_it_was_proven_for(tmp_path: Path) -> None:
    """One line for a notebook: torch begins this range at two units, and that is said."""
    shapes = ({1: 2 * Dim("half", max=32)},)
    made = convert(
        _Halves().eval(), (torch.ones(3, 8),), dynamic_shapes=shapes, out=tmp_path / "out"
    )
    assert made.sizes == ("half from 4 to 64 by 2",)
    assert (
        repr(made) == f"ConvertedBundle('{tmp_path}/out', cpu, bit-equal, half from 4 to 64 by 2)"
    )


def test_a_signal_is_pooled_at_every_length(tmp_path: Path) -> None:
    """torch.export without gradients takes the length that `max_pool1d` sees for fixed."""
    module = nn.Sequential(nn.MaxPool1d(3, 2, 1, ceil_mode=True), nn.MaxPool1d(2, 1)).eval()
    shapes = ({2: Dim("n", min=5, max=33)},)
    made = convert(
        module, (torch.randn(2, 4, 9),), dynamic_shapes=shapes, out=tmp_path / "out",
        measure_seconds=0,
    )  # fmt: skip
    calls = ((torch.randn(2, 4, length),) for length in (5, 6, 16, 33))
    assert_as_eager(made.folder, module, *calls)


class _Asserting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > -5).all())
        return x + 1


def test_an_assertion_without_a_message_fails_the_run(tmp_path: Path) -> None:
    """Eager raises there, and the artifact does."""
    made = convert(_Asserting(), (torch.randn(4),), out=tmp_path / "b", measure_seconds=0)
    with Session(made.folder) as session:
        assert session.run({"x": np.float32([1, 2, 3, 4])})["output"].tolist() == [2, 3, 4, 5]
        with pytest.raises(SessionError, match="an assertion of a value does not hold"):
            session.run({"x": np.float32([1, 2, -6, 4])})


def test_a_line_of_the_standard_library_is_not_the_users(tmp_path: Path) -> None:
    """Torch's own layers enter contexts of contextlib as they ask for a size."""
    layers = nn.Conv1d(2, 3, 3, padding=1, stride=2), nn.ConvTranspose1d(3, 2, 4, 2, 1)
    given, shapes = (torch.randn(1, 2, 5),), ({2: Dim("n", min=1, max=9)},)
    with pytest.raises(ExportError, match="is another program") as caught, torch.no_grad():
        convert(nn.Sequential(*layers).eval(), given, dynamic_shapes=shapes, out=tmp_path / "b")
    assert "contextlib.py" not in str(caught.value)
