"""What float64 says: found where the model allows it, left out where it would be another model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from menagerie.validation.findings import CaseKind
from transforms.goldens.cases import exact_outputs, make_goldens
from transforms.graph.callable import eager_of
from zoo.spec import ProgramSpec

_SPEC = ProgramSpec.model_validate({"inputs": [{"name": "x", "shape": [4, 64]}]})


class _Layer(nn.Module):
    """A linear layer and a bounded function."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(4, 32)."""
        return torch.tanh(self.linear(x))


class _Casting(nn.Module):
    """Computes in float32 whatever it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As x."""
        return x.float().exp()


class _Branching(nn.Module):
    """Another function in float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As x."""
        return x * 2 if x.dtype is torch.float64 else x


class _Refusing(nn.Module):
    """Fails in float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As x."""
        if x.dtype is torch.float64:
            raise TypeError("no such thing here")
        return x + 1


def _exact(module: nn.Module) -> dict[str, torch.Tensor]:
    module = module.eval().requires_grad_(requires_grad=False)
    return exact_outputs(eager_of(module, _SPEC), make_goldens(module, _SPEC))


def test_it_is_what_float64_gives() -> None:
    """By numpy, from the same float32 weights and inputs; the model stays in float32."""
    module = _Layer().eval().requires_grad_(requires_grad=False)
    cases = make_goldens(module, _SPEC)
    [(name, value)] = exact_outputs(eager_of(module, _SPEC), cases).items()
    assert name == "0/exact/output"
    case = cases[0]
    layer = module.linear
    x, weight, bias = (t.double() for t in (case.inputs["x"], layer.weight, layer.bias))
    expected = torch.tanh((x[:, None, :] * weight).sum(-1) + bias)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=1e-15)
    assert layer.weight.dtype is torch.float32


def test_it_is_of_the_case_that_looks_like_data() -> None:
    """The others, in noise, can be of sizes that take many seconds."""
    module = _Layer().eval().requires_grad_(requires_grad=False)
    noise = make_goldens(module, _SPEC)[:2]
    speech = replace(noise[1], kind=CaseKind.SPEECH)
    assert list(exact_outputs(eager_of(module, _SPEC), [noise[0], speech])) == ["1/exact/output"]


def test_a_cast_to_float32_is_widened() -> None:
    """What forward asks for in float32 is in float64, too: by torch's own function."""
    module = _Casting()
    [case, *_] = make_goldens(module, _SPEC)
    [value] = _exact(module).values()
    expected = case.inputs["x"].double().exp()
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("module", [_Branching(), _Refusing()])
def test_what_is_no_truth_is_left_out(module: nn.Module) -> None:
    """Another function, a failure."""
    assert _exact(module) == {}


def test_integers_have_none() -> None:
    """They are exact as they are."""

    class Count(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x > 0).sum(-1)

    assert _exact(Count()) == {}
