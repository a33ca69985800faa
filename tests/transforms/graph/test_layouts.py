"""Layouts: what follows a change of strides is known before anything is edited."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.pieces import Apply
from transforms.graph.editor import ProgramEditor
from transforms.graph.guards import no_new_guards
from transforms.graph.layouts import Unfit, downstream_values, same_layout


def _editor(function: Any, dims: dict[int, Any] | None = None) -> ProgramEditor:
    shapes = None if dims is None else (dims,)
    example = (torch.randn(4, 6),)
    program = torch.export.export(Apply(function), example, dynamic_shapes=shapes, strict=False)
    return ProgramEditor(program)


def _trial(editor: ProgramEditor) -> dict[str, tuple[int, ...]]:
    """Strides by node name when `exp` yields its numbers column by column."""
    exp = next(n for n in editor.graph.nodes if n.name == "exp")
    with editor.fake_mode:
        moved = torch.empty_strided((4, 6), (1, 4))
    values = downstream_values(editor, {exp: moved})
    return {n.name: v.stride() for n, v in values.items()}


def test_strides_spread_until_something_sets_them_anew() -> None:
    """Pointwise calls pass strides on, a matrix product does not; nothing is edited."""
    editor = _editor(lambda x: (x.exp().sin() @ torch.ones(6, 2)).cos())
    assert _trial(editor) == {"exp": (1, 4), "sin": (1, 4)}
    sin = next(n for n in editor.graph.nodes if n.name == "sin")
    assert sin.meta["val"].stride() == (6, 1)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.exp().view(24), "view cannot take the layout"),
        (lambda x: x.exp().as_strided([3], [2]), "as_strided depends on the strides"),
        (lambda x: x.exp().sin().cos().view(3, 8), "view cannot take the layout"),
        (lambda x: torch.rand_like(x.exp()), "rand_like writes or draws random numbers"),
    ],
)
def test_what_cannot_take_the_layout_is_named(function: Any, reason: str) -> None:
    """A call downstream that needs the old strides, however far, makes the trial fail."""
    with pytest.raises(Unfit, match=reason):
        _trial(_editor(function))


def test_a_dynamic_size_is_not_pinned() -> None:
    """Computing on fake values may not assume what the exported program does not."""
    batch = torch.export.Dim("batch", min=2, max=9)
    editor = _editor(lambda x: x.exp(), {0: batch})
    size = next(n for n in editor.graph.nodes if n.name == "exp").meta["val"].shape[0]
    with pytest.raises(RuntimeError, match="Guard"), no_new_guards(editor.fake_mode):
        bool(size == 5)


def test_layouts_are_equal_only_when_all_parts_are() -> None:
    """Sizes, strides, offset and dtype all count."""
    base = torch.empty(4, 6)
    assert same_layout(base, torch.empty(4, 6))
    for other in (base.t(), base[1:], base.double(), torch.empty(25)[1:].view(4, 6)):
        assert not same_layout(base, other)
