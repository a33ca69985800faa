"""What people's modules return, and what they are made of, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from menagerie.session import Session
from transforms import convert
from transforms.graph.callable import without_fast_path
from zoo.errors import ExportError

if TYPE_CHECKING:
    from pathlib import Path

    from transforms.converter import ConvertedBundle


class _Pair(NamedTuple):
    first: torch.Tensor
    second: Any


class _Returned(nn.Module):
    """One tensor twice, with a row of it, and tuples with names: a user's, and torch's own."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        """Of rows of numbers."""
        y = x * 2
        return {"twice": (y, y), "row": y[0], "best": x.max(1), "pair": _Pair(x, x.topk(2))}


class _Flat(nn.Module):
    """Parameters that are views of one buffer, as fused optimisers leave them."""

    def __init__(self) -> None:
        super().__init__()
        flat = torch.randn(4 * 64)
        views = (flat[64 * i : 64 * i + 64].view(8, 8) for i in range(4))
        self.weights = nn.ParameterList(nn.Parameter(view) for view in views)
        self.convolution = nn.Conv2d(1, 1, 3)
        kernel = torch.randn(5, 1, 1, 3, 3)[2]
        self.convolution.weight = nn.Parameter(kernel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through all of them."""
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return self.convolution(x[None, None])


class _Padded(nn.Module):
    """Layers whose eager form has a fast path, which export never sees."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """With tokens that no other looks at."""
        return self.layers(x, src_key_padding_mask=padding)


class _Looked(nn.Module):
    """Looks rows and columns up by a tensor without axes."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One of each, and with an element that is written by itself."""
        y = x.clone()
        y[0, 1] = 7.0
        return x[i], x[:, i], y


def _run(bundle: ConvertedBundle, *inputs: torch.Tensor) -> dict[str, np.ndarray[Any, Any]]:
    with Session(bundle.folder) as session:
        names = (tensor.name for tensor in session.inputs)
        return session.run({n: v.numpy() for n, v in zip(names, inputs, strict=True)})


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_results_may_share_memory_and_have_names(target: str, tmp_path: Path) -> None:
    """Each is an output of its own, called by its keys and fields."""
    x = torch.randn(3, 5)
    bundle = convert(
        _Returned().eval(), (x,), target=target, out=tmp_path / "made", measure_seconds=0
    )
    x = torch.randn(3, 5)
    best, top = x.max(1), x.topk(2)
    expected = {
        "twice_0": x * 2, "twice_1": x * 2, "row": x[0] * 2,
        "best_values": best.values, "best_indices": best.indices,
        "pair_first": x, "pair_second_values": top.values, "pair_second_indices": top.indices,
    }  # fmt: skip
    found = _run(bundle, x)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_parameters_may_be_views_of_one_buffer(target: str, tmp_path: Path) -> None:
    """Each is stored once, by itself, and the library asks for no more than it is."""
    torch.manual_seed(0)
    module, x = _Flat().eval(), torch.randn(3, 8)
    bundle = convert(module, (x,), target=target, out=tmp_path / "made", measure_seconds=0)
    numbers = sum(weight.numel() for weight in module.parameters())
    assert 4 * numbers <= bundle.report.weights_bytes < 4 * numbers + 2048  # and their names
    [found] = _run(bundle, x).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_indices_and_constants_may_have_no_axes(target: str, tmp_path: Path) -> None:
    """Such an index is no number that is read out: it may be any, counted from the end too."""
    inputs = torch.randn(4, 4), torch.tensor(2)
    bundle = convert(
        _Looked().eval(), inputs, target=target, out=tmp_path / "made", measure_seconds=0
    )
    for place in (0, 3, -1):
        x, i = torch.randn(4, 4), torch.tensor(place)
        for found, value in zip(_run(bundle, x, i).values(), _Looked()(x, i), strict=True):
            np.testing.assert_array_equal(found, value)


def test_layers_with_a_fast_path_are_what_export_records(tmp_path: Path) -> None:
    """Golden outputs are not those of the fast path, which has zeros for tokens that are hidden."""
    torch.manual_seed(0)
    module = _Padded().eval()
    padding = torch.tensor([[False, False, False, True]])
    x = torch.randn(1, 4, 8)
    bundle = convert(module, (x, padding), out=tmp_path / "made", measure_seconds=0)
    assert torch.backends.mha.get_fastpath_enabled()
    [found] = _run(bundle, x, padding).values()
    with torch.no_grad(), without_fast_path():
        np.testing.assert_allclose(found, module(x, padding), rtol=1e-4, atol=1e-5)


def test_names_that_clash_become_positions(tmp_path: Path) -> None:
    """Paths of two results may be one name; each keeps its values."""

    class _Losses(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"loss_0": x + 1, "loss": [x * 2, x * 3]}

    x = torch.arange(3.0)
    made = convert(_Losses(), (x,), out=tmp_path / "made", measure_seconds=0)
    with Session(made.folder) as session:
        results = session.run({"x": x.numpy()})
    wants = {"output_0": x + 1, "output_1": x * 2, "output_2": x * 3}
    assert results.keys() == wants.keys()
    assert all(np.array_equal(results[name], want) for name, want in wants.items())


def test_axes_that_come_and_go_with_a_size_are_refused(tmp_path: Path) -> None:
    """An export cannot say that a batch of 1 is squeezed away: the output, the size, what to do."""

    class Squeezed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.squeeze() + 1

    sizes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    fact = r"output output is \[5\] in eager PyTorch at \{'batch': 1\}, and \['batch', 5\] as"
    with pytest.raises(ExportError, match=rf"{fact}.*\.squeeze\(1\)"):
        convert(Squeezed(), (torch.randn(3, 1, 5),), out=tmp_path / "made", dynamic_shapes=sizes)


class _Selections(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        return (
            torch.sort(x > 1, 0), torch.argsort(x, descending=True), torch.topk(x, 3),
            torch.topk(x, 5, largest=False), torch.kthvalue(x, 2, 0), torch.median(x, 1),
            torch.nanmedian(x / (x != 0), 1),
        )  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_indices_of_equal_values_are_proven(target: str, tmp_path: Path) -> None:
    """Eager leaves their order open, an artifact keeps it: goldens have the kept order."""
    x = torch.randint(0, 4, (40, 9), generator=torch.Generator().manual_seed(1))
    out = tmp_path / "out"
    convert(_Selections(), (x,), target=target, out=out, measure_seconds=0)
    if target == "cpu":
        found = [torch.from_numpy(v) for v in Session(out).run({"x": x.numpy()}).values()]
        assert torch.equal(found[2], torch.argsort(x, descending=True, stable=True))
