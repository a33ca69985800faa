"""Attention whose scores a model's own functions change, converted like any other code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class _Documents(nn.Module):
    """Causal within documents, nearer tokens more, four heads of queries on two of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25, -0.5, 0.1]))
        self.document: torch.Tensor
        self.register_buffer("document", torch.tensor([0, 0, 0, 1, 1, 1, 1, 2]))

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The results of one with a mask of blocks and of one without, and that one's sums."""
        mask = create_block_mask(
            lambda b, h, i, j: (self.document[i] == self.document[j]) & (i >= j),  # noqa: ARG005
            None, None, 8, 8, device="cpu",
        )  # fmt: skip

        def nearer(
            score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor
        ) -> torch.Tensor:  # fmt: skip
            return score + self.slopes[h] * (i - j)

        masked = flex_attention(q, k, v, nearer, mask, enable_gqa=True)
        plain, sums = flex_attention(q, k, v, scale=0.3, enable_gqa=True, return_lse=True)
        return masked, plain, sums


def _attention(
    scores: torch.Tensor, mask: torch.Tensor | None, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("exported", "target"),
    [
        (True, "cpu"),
        *(
            pytest.param(*each, marks=pytest.mark.sweep)
            for each in ((False, "cpu"), (False, "metal"), (True, "metal"))
        ),
    ],
)
def test_scores_changed_and_masked_by_functions(
    exported: bool, target: str, tmp_path: Path
) -> None:
    """As softmax and products give it, of a module and of a program that is exported already."""
    torch.manual_seed(0)
    module, given = _Documents().eval(), [torch.randn(1, n, 8, 16) for n in (4, 2, 2)]
    program = torch.export.export(module, tuple(given)) if exported else module
    made = convert(program, tuple(given), target=target, out=tmp_path / "out", measure_seconds=0)

    def eager(q: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k, v = (each.repeat_interleave(2, 1) for each in others)
        place, same = torch.arange(8), module.document[:, None] == module.document
        away = module.slopes[:, None, None] * (place[:, None] - place)
        masked, _ = _attention(q @ k.mT / 4 + away, same & (place[:, None] >= place), v)
        return masked, *_attention(q @ k.mT * 0.3, None, v)

    assert_as_eager(made.folder, eager, [torch.randn_like(each) for each in given], atol=1e-5)
