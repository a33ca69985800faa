"""What rounding one layer costs: the same decibels that doing it by hand gives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms import convert
from transforms.export.prepare import Program, prepare_module
from transforms.passes import quantisation
from transforms.passes.quantisation import INTEGERS, quantised, to_eight_bits
from transforms.stages import transform
from transforms.targets import Settings, target_named
from zoo.precision import Precision, WeightPrecision

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.records import LayerCost


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


class _Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.convolution = nn.Conv2d(16, 32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x)


def _x() -> torch.Tensor:
    return torch.randn(7, 64, generator=torch.Generator().manual_seed(2))


def _costs(module: nn.Module, x: torch.Tensor, precision: Precision) -> tuple[LayerCost, ...]:
    prepared = prepare_module("main", Program(module.eval(), (x,)))
    kept = WeightPrecision(precision)
    _, record = transform([prepared], Settings(target=target_named("cpu"), kept=kept))
    return record.passes[0].rounding


def _snr_db(exact: torch.Tensor, found: torch.Tensor) -> float:
    error = (exact - found).double().norm()
    return float(20 * torch.log10(exact.double().norm() / error))


def _with_rounded(net: _Net, layer: str, precision: Precision) -> _Net:
    changed = _Net()
    changed.load_state_dict(net.state_dict())
    linear = getattr(changed, layer)
    rounded = quantised(linear.weight.detach(), INTEGERS[precision])
    assert rounded is not None
    linear.weight = nn.Parameter(rounded.wide())
    return changed


@pytest.mark.parametrize("precision", [Precision.INT8_WEIGHT_ONLY, Precision.INT4_WEIGHT_ONLY])
def test_each_layer_costs_what_rounding_it_alone_does(precision: Precision) -> None:
    """At its own result and at the output, by modules of which one weight was exchanged."""
    net, x = _Net(), _x()
    costs = {cost.parameter: cost for cost in _costs(net, x, precision)}
    assert set(costs) == {"first.weight", "second.weight"}
    with torch.no_grad():
        hidden = net.first(x).relu()
        for layer, given in (("first", x), ("second", hidden)):
            changed, cost = _with_rounded(net, layer, precision), costs[f"{layer}.weight"]
            result = _snr_db(getattr(net, layer)(given), getattr(changed, layer)(given))
            assert cost.result_snr_db == pytest.approx(result, abs=0.05)
            assert cost.output_snr_db == pytest.approx(_snr_db(net(x), changed(x)), abs=0.05)


def test_a_layer_that_cannot_be_rounded_well_is_the_first() -> None:
    """A number of six times the largest in every group takes the others' steps away."""
    net = _Net()
    with torch.no_grad():
        net.second.weight[:, ::32] = 6 * net.second.weight.abs().max()
    costs = _costs(net, _x(), Precision.INT4_WEIGHT_ONLY)
    assert [cost.parameter for cost in costs] == ["second.weight", "first.weight"]
    assert (costs[0].output_snr_db or 0) < (costs[1].output_snr_db or 0)


@pytest.mark.parametrize(("module", "x"), [(_Image, (3, 16, 9, 9)), (_Net, (7, 64))])
def test_in_integers_the_artifact_is_as_far_off(
    module: type[nn.Module], x: tuple[int, ...], tmp_path: Path
) -> None:
    """What the runtime loses is the sum of what each layer does: such noises are independent."""
    net = module().eval()
    given = torch.randn(x, generator=torch.Generator().manual_seed(3))
    bundle = convert(
        net, (given,), out=tmp_path / "bundle", precision="int8", tolerances={"float32": 0.5}
    )
    parity = bundle.report.validation.programs[0].parity[0]
    noise = [10 ** (-(c.output_snr_db or 0) / 10) for c in bundle.report.passes[0].rounding]
    assert parity.snr_db == pytest.approx(-10 * math.log10(sum(noise)), abs=1.0)


class _Odd(nn.Module):
    """Weights that the runtime does not meet with a rounded operand, or that no product reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.left = nn.Parameter(torch.randn(40, 64))
        self.right = nn.Parameter(torch.randn(64, 40))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.left @ x[0], x @ self.right + self.left.abs().sum(), self.left


def test_other_operands_stay_as_they_are() -> None:
    """In integers as in weights alone: the same cost, whatever reads the weight."""
    costs = []
    for precision in (Precision.INT8, Precision.INT8_WEIGHT_ONLY):
        prepared = prepare_module("main", Program(_Odd().eval(), (_x(),)))
        kept = WeightPrecision(precision)
        settings = Settings(target=target_named("cpu"), passes=(), kept=kept)
        _, record = transform([prepared], settings)
        costs.append({cost.parameter: cost.result_snr_db for cost in record.passes[0].rounding})
    integers, floats = costs
    assert set(integers) == {"left", "right"}
    assert integers == pytest.approx(floats, abs=1.5)  # their scales differ, a row or a group


def test_eight_bits_keep_zero_and_the_ends() -> None:
    """By arithmetic: steps of a 255th of the range; a slice of zeros, or of one sign, too."""
    x = torch.tensor([[-1.0, 0.0, 1.55], [0.0, 0.0, 0.0], [2.0, 4.0, 5.1]])
    found = to_eight_bits(x, (-1,))
    assert found[0].tolist() == pytest.approx([-1.0, 0.0, 1.55])
    assert found[1].tolist() == [0.0, 0.0, 0.0]
    assert found[2].tolist() == pytest.approx([2.0, 4.0, 5.1])
    assert float(to_eight_bits(torch.tensor([[0.0, 0.013, 2.55]]), (-1,))[0, 1]) == pytest.approx(
        0.01
    )


def test_of_a_large_program_no_layer_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The costs at its layers' own results are still given."""
    monkeypatch.setattr(quantisation, "_MOST_PARAMETERS", 1000)
    costs = _costs(_Net(), _x(), Precision.INT8_WEIGHT_ONLY)
    assert [cost.output_snr_db for cost in costs] == [None, None]
    assert all(math.isfinite(cost.result_snr_db) for cost in costs)


def test_a_head_of_one_number_is_not_judged_where_it_is_nearly_zero(tmp_path: Path) -> None:
    """With this seed the case of one row was -0.0001, by chance, and rounding errs by 0.003."""
    torch.manual_seed(19)
    module, x = nn.Linear(37, 1).eval(), torch.randn(5, 37)
    convert(
        module,
        (x,),
        dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=40)},),
        precision=Precision.INT8_WEIGHT_ONLY,
        measure_seconds=0.0,
        out=tmp_path / "made",
    )
