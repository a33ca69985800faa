"""The device in host memory under torch's key `mps`: what lowering computes there is right."""

from __future__ import annotations

import pytest
import torch

from transforms.lowering.metal import provide_mps


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    provide_mps()


def _there(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("mps")


def test_values_go_there_and_back() -> None:
    """Every dtype that models have, contiguous or not, and empty."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        value = torch.arange(24).to(dtype).reshape(4, 6)
        for tensor in (value, value.t(), value[1:, ::2], value[:0]):
            moved = _there(tensor)
            assert moved.device == torch.device("mps", 0)
            assert torch.equal(moved.cpu(), tensor)


def test_views_share_memory() -> None:
    """Slices, transposes and reshapes write through to their base."""
    base = _there(torch.zeros(3, 4))
    base[1:, ::2].t().fill_(1)
    base.view(12)[0] = 5
    expected = torch.zeros(3, 4)
    expected[1:, ::2] = 1
    expected[0, 0] = 5
    assert torch.equal(base.cpu(), expected)


def test_every_other_operator_computes_as_the_cpu_does() -> None:
    """Products, reductions, comparisons and in-place operators fall back to the CPU's."""
    left, right = torch.randn(3, 5), torch.randn(5, 2)
    assert torch.equal((_there(left) @ _there(right)).cpu(), left @ right)
    assert torch.equal(_there(left).sum(0).cpu(), left.sum(0))
    assert torch.equal((_there(left) > 0).cpu(), left > 0)
    assert torch.equal(_there(left).mul_(2).cpu(), left * 2)
    assert torch.equal(torch.cat([_there(left), _there(left)]).cpu(), torch.cat([left, left]))


def test_out_variants_resize_what_they_are_given() -> None:
    """An empty `out` grows; one that is large enough keeps its memory."""
    left = torch.randn(4, 4)
    empty = torch.empty(0, device="mps")
    torch.sin(_there(left), out=empty)
    assert torch.equal(empty.cpu(), left.sin())
    large = torch.empty(32, device="mps").resize_(4, 4)
    torch.sin(_there(left), out=large)
    assert torch.equal(large.cpu(), left.sin())


def test_growing_keeps_what_was_there() -> None:
    """resize_ to more elements leaves the first ones in place."""
    tensor = _there(torch.arange(4.0))
    tensor.resize_(2, 64)
    assert torch.equal(tensor.view(-1)[:4].cpu(), torch.arange(4.0))


def test_a_single_element_can_be_read() -> None:
    """item() and bool(), which constant folding asks for."""
    assert _there(torch.tensor(2.5)).item() == 2.5
    assert bool(_there(torch.ones(1)).all())


def test_torch_still_says_that_there_is_no_metal() -> None:
    """No other code may take the device for a GPU."""
    if not torch.backends.mps.is_built():
        assert not torch.backends.mps.is_available()
