"""What a kernel issues by the model, by hand, and what two kernels of ours issue."""

from __future__ import annotations

import pytest
import torch

from benchmarks import metal_cycles
from benchmarks.metal_cycles import Calls, Work, cut_of, epilogue, issued, seconds, share
from benchmarks.metal_lane import Cycles, Function, Lane, packed, weight

# for (i = 0; i < count; ++i) sum += 3 * i, then 1.0 is stored in the buffer
_LOOP = """
entry:
  %0 = load i32, ptr %p, align 4, !tbaa !4
  br label %body

body:                                     ; preds = %body, %entry
  %i = phi i32 [ 0, %entry ], [ %next, %body ]
  %sum = phi i32 [ 0, %entry ], [ %more, %body ]
  %product = mul nsw i32 %i, 3
  %more = add nsw i32 %sum, %product
  %next = add nuw nsw i32 %i, 1
  %done = icmp eq i32 %next, %0
  br i1 %done, label %end, label %body

end:                                              ; preds = %body
  %wide = sext i32 %more to i64
  %place = getelementptr inbounds float, ptr addrspace(1) %out, i64 %wide
  store float 1.000000e+00, ptr addrspace(1) %place, align 4
  ret void
"""


def test_a_thread_issues_what_it_runs_through() -> None:
    """A round takes 2.3 + 1 + 1 + 1 + 1; before it is one branch, after it 1 + 4 + 1."""
    function = Function.of("ptr addrspace(1) noundef %out, ptr noundef %p", _LOOP)
    for count in (1, 10):
        lane = Lane()
        cycles = lane.run(function, [None, packed("i", count)])
        assert cycles.all == pytest.approx(1 + count * 6.3 + 6)
        assert lane.values["%more"] == 3 * sum(range(count))


def test_instructions_take_the_published_cycles() -> None:
    """As github.com/philipturner/metal-benchmarks has them for an M1."""
    assert [weight(w, k, constant=False) for w in ("add", "mul") for k in ("i32", "i64")] == [
        1, 4, 2.3, 13.4,
    ]  # fmt: skip
    assert weight("fmul", "float", constant=False) == 1


def test_a_step_of_a_tile_multiplies_all_of_its_matrices() -> None:
    """Of 64 x 64 x 16: 128 products of 8 x 8 x 8, 32 for each of 4 SIMD groups, 16 cycles each."""
    steps = [issued(Work("product", 256, 256, k), 64) for k in (16, 32)]
    assert steps[0].matrices == 32 * 16
    convolved = issued(Work("convolution", 256, 256, 9 * 16, window=3), 64)
    assert convolved.matrices == 9 * 32 * 16
    assert (steps[1] - steps[0]).matrices == 32 * 16
    assert 0 < share(Work("product", 256, 256, 32), 64) < 1
    assert epilogue(other=True) < 25  # two divisions of 64 bits an element took 160 and more


def test_time_is_that_of_issue_or_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 tiles of 4 SIMD groups share 32 schedulers; a vector's matrix is read at 68.25 GB/s."""
    product = Work("product", 512, 512, 64)
    assert cut_of(product) == (64, 1)
    assert cut_of(Work("product", 256, 192, 4096)) == (64, 2)
    monkeypatch.setattr(metal_cycles, "issued", lambda *_: Cycles(1278e3, 0))
    assert seconds(product) == pytest.approx(64 * 4 / 32 * 1e-3)
    monkeypatch.setattr(metal_cycles, "issued", lambda *_: Cycles(1, 0))
    vector = Work("product", 1, 1024, 2048, turned=True)
    assert seconds(vector) == pytest.approx(4 * (2048 * 1024 + 2048 + 1024) / 68.25e9)


def test_works_are_those_that_a_module_calls() -> None:
    """A convolution of 3 x 3, one of each channel, a residual of one of 1 x 1, a linear layer."""
    x = torch.randn(1, 8, 6, 6)
    deep = torch.nn.Conv2d(8, 8, 3, padding=1)
    each = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
    point = torch.nn.Conv2d(8, 8, 1)
    linear = torch.nn.Linear(36, 5)
    with torch.no_grad(), Calls() as calls:
        linear((x + point(each(deep(x)))).flatten(2)[0])
    assert calls.works == [
        Work("convolution", 8, 36, 72, window=3),
        Work("depthwise", 8, 36, 9, window=3),
        Work("product", 8, 36, 8, other=True),
        Work("product", 8, 5, 36, turned=True),
    ]
