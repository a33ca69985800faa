"""A depthwise convolution and the expansion that it alone reads become one call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transforms import run_passes

_PASSES = ["fuse_activations", "join_expanded_depthwise"]


class _Block(nn.Module):
    """An inverted residual's first layers, which `changed` makes something else."""

    def __init__(self, changed: str = "") -> None:
        super().__init__()
        self.changed = changed
        kernel = 3 if changed == "window" else 1
        channels = 36 if changed == "step" else 4
        self.before = nn.Conv2d(4, channels, 1)
        self.expand = nn.Conv2d(channels, 12, kernel, stride=2 if changed == "step" else 1)
        groups = 4 if changed == "groups" else 12
        self.slide = nn.Conv2d(12, 12, 3, padding=1, groups=groups)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """12 channels of 4."""
        deep = self.before(image) if self.changed == "step" else image
        wide = nn.functional.relu6(self.expand(deep))
        if self.changed == "gelu":
            return nn.functional.gelu(self.slide(wide))
        made = nn.functional.silu(self.slide(wide))
        return made + wide if self.changed == "read twice" else made


def _calls(block: nn.Module) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """The heavy operators after the pass, the result's fake value, and eager's."""
    image = torch.randn(2, 4, 9, 8)
    program, _ = run_passes(torch.export.export(block.eval(), (image,)), _PASSES)
    heavy = [node for node in program.graph.nodes if "conv" in str(node.target) or
             "depthwise" in str(node.target)]  # fmt: skip
    names = [str(node.target).split(".")[1] for node in heavy]
    return names, heavy[-1].meta["val"], block(image)


def test_one_call_has_what_both_said() -> None:
    """Its result's sizes are eager's, and it is channels-last as the runtime makes it."""
    names, fake, eager = _calls(_Block())
    assert names == ["expanded_depthwise"]
    assert fake.shape == eager.shape
    assert fake.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("changed", ["window", "step", "groups", "gelu", "read twice"])
def test_what_is_no_such_pair_stays(changed: str) -> None:
    """Two calls, as activations alone make them."""
    names, _, _ = _calls(_Block(changed))
    assert names[-2:] == ["_convolution_pointwise"] * 2


def test_half_precision_stays() -> None:
    """The runtime computes it wider, one convolution after the other."""
    block = _Block().half().eval()
    image = torch.randn(2, 4, 9, 8).half()
    program, _ = run_passes(torch.export.export(block, (image,)), _PASSES)
    assert "expanded" not in str(program.graph)


class _Sampling(nn.Module):
    """The first layers of a speech network, whose mask `changed` makes something else."""

    def __init__(self, changed: str = "") -> None:
        super().__init__()
        self.changed = changed
        channels = 4 if changed == "deep" else 1
        self.expand = nn.Conv2d(channels, 12, 3, stride=2, padding=1)
        self.slide = nn.Conv2d(12, 12, 3, padding=1, groups=12)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """12 channels of one; rows beyond the fifth are zero."""
        expand = self.expand(image if self.changed == "deep" else image[:, :1])
        mask = (torch.arange(expand.shape[2]) < 5)[None, None, :, None]
        if self.changed == "columns":
            mask = (torch.arange(expand.shape[3]) < 3)[None, None, None, :]
        elif self.changed == "channels":
            mask = mask & (torch.arange(12) < 5)[None, :, None, None]
        masked = mask * expand if self.changed == "order" else expand * mask
        if self.changed == "bare":
            return self.slide(masked)
        made = self.slide(torch.relu(masked))
        return made + expand if self.changed == "read twice" else made


def _sampled(changed: str, dynamic: bool = False) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    block, image = _Sampling(changed).eval(), torch.randn(2, 4, 12, 8)
    height = {"image": {2: 4 * torch.export.Dim("rows", min=2, max=9)}} if dynamic else None
    program = torch.export.export(block, (image,), dynamic_shapes=height)
    joined, _ = run_passes(program, _PASSES)
    heavy = [node for node in joined.graph.nodes if "conv" in str(node.target) or
             "depthwise" in str(node.target)]  # fmt: skip
    names = [str(node.target).split(".")[1] for node in heavy]
    return names, heavy[-1].meta["val"], block(image)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("changed", ["", "order"])
def test_a_mask_of_rows_is_joined(changed: str, dynamic: bool) -> None:
    """Also where it asks for the first convolution's size."""
    names, fake, eager = _sampled(changed, dynamic)
    assert names == ["expanded_depthwise"]
    assert dynamic or fake.shape == eager.shape


@pytest.mark.parametrize("changed", ["columns", "channels", "deep", "bare", "read twice"])
def test_other_masks_and_deeper_images_stay(changed: str) -> None:
    """Two convolutions, and a product between them."""
    names, _, _ = _sampled(changed)
    assert names == ["conv2d"] * 2
