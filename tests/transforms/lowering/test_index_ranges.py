"""Operators that take indices: where eager PyTorch raises, so does the run; else they agree.

All operators share one program, each with its own index, so that one at a time is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import menagerie
from transforms import convert
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from menagerie import Session

# index_reduce is called unfinished by torch.
pytestmark = pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")

ROWS, COLUMNS = 4, 3


class Operator(NamedTuple):
    """What is made of a table [ROWS, COLUMNS] and two indices, and how many places there are."""

    function: Callable[[Tensor, Tensor], Tensor]
    size: int = ROWS
    dtype: torch.dtype = torch.int64
    example: tuple[int, int] = (1, 2)


def _wide(index: Tensor) -> Tensor:
    return index[:, None].expand(2, COLUMNS)


def _unpooled(x: Tensor, i: Tensor) -> Tensor:
    return F.max_unpool1d(x[None, :1, :2], i[None, None], 2)


OPERATORS: dict[str, Operator] = {
    "index_select": Operator(lambda x, i: x.index_select(0, i)),
    "index_select, last axis": Operator(lambda x, i: x.index_select(-1, i), COLUMNS),
    "index_select, int32": Operator(lambda x, i: x.index_select(0, i), dtype=torch.int32),
    "index_add": Operator(lambda x, i: x.index_add(0, i, x[:2])),
    "index_add, bfloat16": Operator(
        lambda x, i: x.bfloat16().index_add(1, i, x[:, 1:].bfloat16()).float(), COLUMNS
    ),
    "index_add, int32": Operator(lambda x, i: x.index_add(0, i, x[:2]), dtype=torch.int32),
    "index_copy": Operator(lambda x, i: x.index_copy(0, i, x[:2])),
    "index_fill": Operator(lambda x, i: x.index_fill(0, i, 1.5)),
    "index_reduce": Operator(lambda x, i: x.index_reduce(0, i, x[:2], "amax")),
    "gather": Operator(lambda x, i: x.gather(0, _wide(i))),
    "take_along_dim": Operator(lambda x, i: x.take_along_dim(_wide(i), 0)),
    "scatter": Operator(lambda x, i: x.scatter(0, _wide(i), x[:2])),
    "scatter of a value": Operator(lambda x, i: x.scatter(0, _wide(i), 1.5)),
    "scatter into zeros": Operator(
        lambda _, i: torch.zeros(2, ROWS).scatter(1, i[:, None], 1.0)
    ),
    "scatter_add": Operator(lambda x, i: x.scatter_add(0, _wide(i), x[:2])),
    "scatter_reduce": Operator(lambda x, i: x.scatter_reduce(0, _wide(i), x[:2], "prod")),
    "take": Operator(lambda x, i: x.take(i), ROWS * COLUMNS),
    "put": Operator(lambda x, i: x.put(i, x[0, :2]), ROWS * COLUMNS),
    "index": Operator(lambda x, i: x[i]),
    "index, int32": Operator(lambda x, i: x[i], dtype=torch.int32),
    "index, last axis": Operator(lambda x, i: x[:, i], COLUMNS),
    "index_put": Operator(lambda x, i: x.index_put((i,), x[:2])),
    "index_put, a sum": Operator(lambda x, i: x.index_put((i,), x[:2], accumulate=True)),
    "embedding": Operator(lambda x, i: F.embedding(i, x)),
    "embedding, int32": Operator(lambda x, i: F.embedding(i, x), dtype=torch.int32),
    "embedding_bag": Operator(lambda x, i: F.embedding_bag(i[None], x, mode="sum")),
    "embedding_bag, largest": Operator(lambda x, i: F.embedding_bag(i[None], x, mode="max")),
    "one_hot": Operator(lambda _, i: F.one_hot(i, ROWS)),
    "max_unpool": Operator(_unpooled),
    "nll_loss": Operator(lambda x, i: F.nll_loss(x[:2], i), COLUMNS),
    "nll_loss of images": Operator(lambda x, i: F.nll_loss(x.t()[None, :, :2], i[None]), COLUMNS),
    "cross_entropy": Operator(lambda x, i: F.cross_entropy(x[:2], i), COLUMNS),
    "multi_margin_loss": Operator(lambda x, i: F.multi_margin_loss(x[:2], i), COLUMNS),
    "searchsorted, sorter": Operator(
        lambda x, i: torch.searchsorted(x[0, :2].contiguous(), x[1], sorter=i), 2, example=(0, 1)
    ),
    "repeat_interleave": Operator(lambda x, i: x[:2].repeat_interleave(i, 0, output_size=3), 9),
}  # fmt: skip


class _All(nn.Module):
    """All operators, each of the table and indices of its own."""

    def forward(self, table: Tensor, *indices: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(OPERATORS.values(), indices, strict=True)
        return tuple(operator.function(table, index) for operator, index in pairs)


def _table() -> Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))


def _indices(operator: Operator) -> Tensor:
    return torch.tensor(operator.example, dtype=operator.dtype)


@pytest.fixture(scope="module", params=["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """All operators, converted together."""
    inputs = (_table(), *map(_indices, OPERATORS.values()))
    out = tmp_path_factory.mktemp("ranges") / "bundle"
    bundle = convert(_All(), inputs, target=request.param, out=out, measure_seconds=0)
    with menagerie.open(bundle.folder) as opened:
        yield opened


@pytest.mark.parametrize("name", OPERATORS)
def test_an_index_is_taken_as_eager_takes_it(session: Session, name: str) -> None:
    """Negative, just outside and far outside: eager's values, or the run fails as eager does."""
    operator, table = OPERATORS[name], _table()
    size, far = operator.size, torch.iinfo(operator.dtype).max // 2
    values = [table, *map(_indices, OPERATORS.values())]
    place = list(OPERATORS).index(name)
    for outside in (-1, -size, -size - 1, size, far):
        index = torch.tensor([operator.example[0], outside], dtype=operator.dtype)
        feed = [*values[: place + 1], index, *values[place + 2 :]]
        named = {i.name: v.numpy() for i, v in zip(session.inputs, feed, strict=True)}
        try:
            expected = operator.function(table, index).numpy()
        except (IndexError, RuntimeError):
            with pytest.raises(SessionError):
                session.run(named)
        else:
            found = list(session.run(named).values())[place]
            np.testing.assert_array_equal(found, expected, err_msg=f"{name} of {outside}")
