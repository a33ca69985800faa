"""Where in the model code generation or the compiler fails is said, by node, module and line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._inductor import lowering
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

from transforms import convert
from transforms.lowering.metal_codegen import MetalFunctions
from zoo.errors import LoweringError, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

aten = torch.ops.aten
_HERE = r"asinh, activation \(.*test_places.py:\d+, aten.asinh.default\)"


class Activation(nn.Module):
    """A function of numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of any shape."""
        return torch.asinh(x)


class Net(nn.Module):
    """A layer and a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(4, 4), Activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(2, 4) to (2, 4)."""
        result: torch.Tensor = self.activation(self.linear(x))
        return result


def _refuses(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("there is no asinh today")


def _convert(out: Path, target: str = "cpu") -> None:
    convert(Net().eval(), (torch.randn(2, 4),), target=target, out=out)


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_a_lowering_that_fails(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node, of those that Inductor takes one by one."""
    monkeypatch.setitem(lowering.lowerings, aten.asinh.default, _refuses)
    with pytest.raises(LoweringError, match=f"failed at {_HERE}: .*no asinh today"):
        _convert(tmp_path / "made", target)


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_a_kernel_that_cannot_be_written(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes that it computes."""
    for functions in (CppOverrides, CppVecOverrides, MetalFunctions):
        monkeypatch.setattr(functions, "asinh", staticmethod(_refuses))
    with pytest.raises(LoweringError, match=f"failed at (.* or )?{_HERE}.*: .*no asinh today"):
        _convert(tmp_path / "made", target)


def test_a_shader_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal's compiler names what the kernel computes, and the line of the kernel."""
    monkeypatch.setattr(MetalFunctions, "asinh", staticmethod(lambda x: f"nonsense({x})"))
    with pytest.raises(ValidationError, match=rf"{_HERE}.*:\d+:\d+: error: .*nonsense"):
        _convert(tmp_path / "made", "metal")


def test_a_kernel_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its operators, with the compiler's words."""
    for functions in (CppOverrides, CppVecOverrides):
        monkeypatch.setattr(functions, "asinh", staticmethod(lambda x: f"nonsense({x})"))
    with pytest.raises(LoweringError, match=r"nonsense.*, in cpp_fused_asinh\w*"):
        _convert(tmp_path / "made")
