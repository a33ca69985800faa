"""An artifact and eager PyTorch, timed like for like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from transforms.eager import measure_beside_eager
from transforms.goldens.cases import GoldenCase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    MakeBundle = Callable[..., Path]


def timed(
    bundle: Path,
    eager: Callable[[dict[str, torch.Tensor]], object],
    *elements: int,
    took: Sequence[float] = (),
    seconds: float = 1e-3,
    emulated: bool = False,
) -> tuple[Any, Any]:
    """The times of program `main`, whose golden cases have so many elements, on two threads."""
    goldens = [
        GoldenCase({}, {"x": torch.zeros(n)}, {}, seconds=s)
        for n, s in zip(elements, took or [0.0] * len(elements), strict=True)
    ]
    program: Any = SimpleNamespace(name="main", goldens=goldens, eager=eager)
    target: Any = SimpleNamespace(emulated_here=emulated)
    return measure_beside_eager(bundle, [program], target, threads=2, seconds=seconds)


def test_both_are_timed_on_the_largest_case_with_the_threads_given(
    make_bundle: MakeBundle, misdeed: type
) -> None:
    """The case that validation would time; the threads of the caller are as before."""
    seen = []

    def eager(inputs: dict[str, torch.Tensor]) -> None:
        seen.append((inputs["x"].numel(), torch.get_num_threads(), torch.is_grad_enabled()))

    before = torch.get_num_threads()
    bundle = make_bundle(main=[misdeed.SEGMENTATION_FAULT, misdeed.NONE])
    [(name, artifact)], [(same, compared)] = timed(bundle, eager, 3, 5)
    assert (name, same) == ("main", "main")
    assert (artifact.case, artifact.threads) == (compared.case, compared.threads) == (1, 2)
    assert artifact.minimum_ms > 0
    assert set(seen) == {(5, 2, False)}
    assert torch.get_num_threads() == before


def test_a_case_that_takes_seconds_is_not_timed(make_bundle: MakeBundle, misdeed: type) -> None:
    """The largest of the others is timed instead."""
    bundle = make_bundle(main=[misdeed.NONE] * 3)
    [(_, artifact)], _ = timed(bundle, lambda _: None, 3, 5, 9, took=[0.1, 0.9, 6.0])
    assert artifact.case == 1


def test_an_artifact_that_cannot_be_run_has_no_latency(
    make_bundle: MakeBundle, misdeed: type
) -> None:
    """Its crash ends nothing else: the validation that follows says what is wrong with it."""
    bundle = make_bundle(main=[misdeed.SEGMENTATION_FAULT])
    before = torch.get_num_threads()
    assert timed(bundle, lambda _: None, 3) == ((), ())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("options", [{"seconds": 0.0}, {"emulated": True}])
def test_nothing_is_run_where_nothing_would_compare(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """An emulated device's latency says nothing of a real one's; zero seconds time nothing."""

    def never(_: object) -> None:
        raise AssertionError("eager was run")

    assert timed(tmp_path / "no bundle", never, 3, **options) == ((), ())
