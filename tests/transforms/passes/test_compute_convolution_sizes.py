"""How long a convolution's result is, is known without it."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from transforms.graph.editor import ProgramEditor
from transforms.passes.compute_convolution_sizes import ComputeConvolutionSizes

aten = torch.ops.aten
_BATCH = torch.export.Dim("batch", min=2, max=9)
_PLACES = torch.export.Dim("places", min=12, max=64)  # so that no result has one place alone


class Numbered(nn.Module):
    """A convolution, and numbers for one of its result's axes."""

    def __init__(self, layer: nn.Module, axis: int) -> None:
        super().__init__()
        self.layer = layer
        self.axis = axis

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, 2, places) to (N, 3, places of the result), and as many numbers as N or those."""
        result = self.layer(x)
        return result, torch.arange(result.shape[self.axis])


def _asking(module: nn.Module) -> torch.export.ExportedProgram:
    """The program, which asks the convolution's result for the size, as passes may leave it."""
    program = torch.export.export(
        module, (torch.randn(3, 2, 20),), dynamic_shapes=({0: _BATCH, 2: _PLACES},)
    )
    editor = ProgramEditor(program)
    (convolution,) = editor.calls(aten.conv1d.default)
    (arange,) = editor.calls(aten.arange.default)
    asked = editor.call(aten.sym_size.int, convolution, module.axis, like=arange)
    arange.replace_input_with(arange.args[0], asked)
    return editor.finish()


@settings(max_examples=20, deadline=None)
@given(
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    taps=st.integers(1, 4),
    places=st.integers(12, 64),
    axis=st.sampled_from([0, 2]),
)
def test_sizes_are_those_of_the_results(
    stride: int, padding: int, dilation: int, taps: int, places: int, axis: int
) -> None:
    """For all windows, at sizes that the program was not exported with."""
    assume(dilation * (taps - 1) < 8)
    layer = nn.Conv1d(2, 3, taps, stride=stride, padding=padding, dilation=dilation)
    module = Numbered(layer, axis).eval()
    computed, _ = ComputeConvolutionSizes()(_asking(module))
    (convolution,) = (n for n in computed.graph.nodes if n.target is aten.conv1d.default)
    assert all(user.target is not aten.sym_size.int for user in convolution.users)
    x = torch.randn(5, 2, places)
    torch.testing.assert_close(computed.module()(x), module(x))
