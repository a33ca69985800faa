"""Golden inputs: seeded, in range, and of the kind the manifest names."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from menagerie.numerics import Dtype
from menagerie.validation.findings import CaseKind
from transforms.goldens.cases import (
    PlannedCase,
    make_goldens,
    make_inputs,
    planned_cases,
    telling_sizes,
)
from zoo.errors import ExportError
from zoo.spec import Dimension, InputSpec, ProgramSpec, Sample, SampleKind

if TYPE_CHECKING:
    from collections.abc import Callable


def _spec(sample: Sample, dtype: str = "float32") -> ProgramSpec:
    return ProgramSpec.model_validate(
        {"inputs": ({"name": "x", "shape": (4, 50), "dtype": dtype, "sample": sample},)}
    )


def _draw(sample: Sample, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    noise = PlannedCase({}, CaseKind.NOISE)
    return make_inputs(_spec(sample, dtype), noise, seed=seed, dtype=torch.float32)["x"]


def test_same_seed_same_values_other_seed_other_values() -> None:
    """A golden case can be made again from its number alone, whatever torch drew before."""
    first = _draw(Sample(), seed=7)
    torch.rand(10)
    assert torch.equal(first, _draw(Sample(), seed=7))
    assert not torch.equal(first, _draw(Sample(), seed=8))


@pytest.mark.parametrize(
    ("sample", "dtype", "low", "high"),
    [
        (Sample(kind=SampleKind.UNIFORM, low=-2, high=3), "float32", -2.0, 3.0),
        (Sample(kind=SampleKind.INTEGERS, low=5, high=9), "int64", 5, 8),
        (Sample(kind=SampleKind.ONES), "int32", 1, 1),
    ],
)
def test_values_are_in_their_range(sample: Sample, dtype: str, low: float, high: float) -> None:
    """Every kind of sample respects its bounds and dtype."""
    drawn = _draw(sample, dtype)
    assert drawn.dtype is getattr(torch, dtype)
    assert low <= drawn.min().item()
    assert drawn.max().item() <= high


def test_prefix_mask_is_true_for_a_prefix() -> None:
    """Each row of a mask is some trues, at least one, and then only falses."""
    mask = _draw(Sample(kind=SampleKind.PREFIX_MASK), "bool")
    lengths = mask.sum(-1)
    assert (lengths >= 1).all()
    assert torch.equal(mask, torch.arange(50).expand(4, 50) < lengths[:, None])


def test_half_models_get_half_inputs() -> None:
    """Inputs declared float32 take the model's dtype; integers stay integers."""
    spec = ProgramSpec.model_validate(
        {
            "inputs": (
                {"name": "x", "shape": (2,)},
                {
                    "name": "ids",
                    "shape": (2,),
                    "dtype": "int64",
                    "sample": Sample(kind=SampleKind.INTEGERS, high=9),
                },
            )
        }
    )
    noise = PlannedCase({}, CaseKind.NOISE)
    inputs = make_inputs(spec, noise, seed=0, dtype=torch.bfloat16)
    assert inputs["x"].dtype is torch.bfloat16
    assert inputs["ids"].dtype is torch.int64


@given(
    low=st.integers(1, 50), span=st.integers(16, 400), step=st.sampled_from([1, 2, 8]),
    cases=st.integers(1, 9),
)  # fmt: skip
def test_cases_cover_low_high_and_an_odd_middle(low: int, span: int, step: int, cases: int) -> None:
    """Every dimension is seen at its lowest, highest and an odd multiple between."""
    bounds = Dimension(low=low * step, high=(low + span) * step, multiple_of=step)
    spec = ProgramSpec.model_validate({
        "inputs": ({"name": "x", "shape": ("n",)},), "dimensions": {"n": bounds},
        "golden_cases": cases,
    })  # fmt: skip
    seen = [c.dimensions["n"] for c in planned_cases(spec)]
    allowed = [n * step for n in range(low, low + span + 1)]
    assert len(seen) >= max(cases, 3)
    assert set(seen) <= set(allowed)
    assert {allowed[0], allowed[-1]} <= set(seen)
    assert any(n // step % 2 == 1 for n in seen)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_any_two_dimensions_are_seen_at_their_ends(count: int) -> None:
    """Low with low, low with high, high with low and high with high; in few cases, each once."""
    names = [f"n{i}" for i in range(count)]
    cases = telling_sizes({name: Dimension(low=2, high=9, multiple_of=1) for name in names})
    assert len(cases) <= 3 + 2 * count
    assert len({tuple(case.items()) for case in cases}) == len(cases)
    for a, b in itertools.combinations(names, 2):
        seen = {(case[a], case[b]) for case in cases}
        assert set(itertools.product((2, 9), repeat=2)) <= seen


class _Gives(torch.nn.Module):
    """Returns what `make` makes of its input."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self._make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self._make(x)


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda _: (), "returns no tensor"),
        (lambda x: (x, x * torch.nan), "output output_1 of eager PyTorch has no finite element"),
        (lambda x: x + torch.inf, "output output of eager PyTorch has no finite element"),
        (lambda x: (x, x[:0]), "output output_1 has no element in any golden case"),
    ],
    ids=["none", "NaN", "infinity", "empty"],
)
def test_outputs_that_prove_nothing_are_refused(make: Callable[..., Any], fact: str) -> None:
    """Whatever an artifact computes, it would be bit-equal to them."""
    with pytest.raises(ExportError, match=f"^program main: {fact}"):
        make_goldens(_Gives(make), _spec(Sample()))


def test_some_finite_elements_suffice() -> None:
    """A mask with infinities in it, and integers, are outputs like others."""
    spec = _spec(Sample())
    [case, *_] = make_goldens(_Gives(lambda x: (x.masked_fill(x > 0, -torch.inf), x.long())), spec)
    assert set(case.outputs) == {"output_0", "output_1"}


def test_inputs_that_cannot_be_drawn_are_the_manifests_fault() -> None:
    """What no rule of the manifest foresaw is reported with the sizes, without a traceback."""
    sample = Sample().model_copy(update={"kind": SampleKind.INTEGERS, "low": 3.0, "high": 3.0})
    spec = ProgramSpec.model_construct(**{
        **_spec(Sample()).__dict__,
        "inputs": (InputSpec.model_construct(
            name="x", shape=(4, 50), dtype=Dtype.INT64, sample=sample
        ),),
    })  # fmt: skip
    with pytest.raises(ExportError, match=r"^program main: .*\. Fix the inputs"):
        make_goldens(_Gives(lambda x: x), spec)
