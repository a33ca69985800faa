"""Records of real graphs: what is drawn of them, and how a pass shows."""

from __future__ import annotations

import torch
from torch import nn

from transforms import run_passes
from transforms.graph.record import record_graph
from zoo.records import GraphRecord, NodeKind
from zoo.report.graph import Mark, merge


class _ConvNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.split(torch.relu(self.norm(self.conv(x))), 2, dim=1)
        return left * right


def _record_of_conv_norm() -> tuple[GraphRecord, GraphRecord]:
    module = _ConvNorm().eval()
    program = torch.export.export(module, (torch.randn(1, 3, 6, 6),), strict=False)
    program = program.run_decompositions({})
    folded, _ = run_passes(program, ["fold_batch_norm"])
    return record_graph(program), record_graph(folded)


def test_record_has_inputs_operators_and_output_but_no_weights() -> None:
    """Weights and the picking of one of several results are not drawn; modules are named."""
    before, after = _record_of_conv_norm()
    assert [n.operator for n in before.nodes] == [
        "x",
        "conv2d",
        "batch_norm",
        "relu",
        "split",
        "mul",
        "output",
    ]
    assert [n.operator for n in after.nodes] == ["x", "conv2d", "relu", "split", "mul", "output"]
    conv = before.nodes[1]
    assert (conv.module, conv.kind, conv.detail) == ("conv", NodeKind.HEAVY, "1×4×4×4 float32")  # noqa: RUF001
    known: set[str] = set()
    for node in before.nodes:
        assert known.issuperset(node.inputs)
        known.add(node.name)


def test_picture_of_a_real_pass_marks_the_fold() -> None:
    """The folded convolution is new, the convolution and its normalisation are gone."""
    lines = [(line.mark, line.node.operator) for line in merge(*_record_of_conv_norm())]
    assert [name for mark, name in lines if mark is Mark.REMOVED] == ["conv2d", "batch_norm"]
    assert [name for mark, name in lines if mark is Mark.ADDED] == ["conv2d"]
