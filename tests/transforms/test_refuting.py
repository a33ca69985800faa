"""A proof refutes what golden cases hide: passes that are wrong on purpose, by `convert()`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import menagerie
from menagerie.validation.refuting import Kind
from tests.pieces import assert_as_eager
from transforms import convert, pipeline
from transforms.goldens import cases
from transforms.goldens.refuting import LISTED, excuses
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.traced import write
from zoo.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten
ROOT = Path(__file__).parents[2]


def _wrong(operator: object, function: Callable[..., torch.Tensor]) -> type[GraphPass]:
    """Make a pass that computes something else in place of an operator."""

    class Wrong(GraphPass):
        """Replaces an operator with a wrong one."""

        name = "wrong"
        summary = "Replaces an operator with a wrong one"

        def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
            """See the class."""
            for node in editor.calls(operator):
                made = write(editor, function, *node.args[:2], like=node)
                editor.replace(node, made)

    return Wrong


class _Apply(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: torch.Tensor) -> Any:
        """Apply the function."""
        return self.function(*x)


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 1e-20, 0.0, x.relu())


ROWS = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
TABLE, PLACES = torch.eye(7), torch.tensor([1, 4, 2])
FAULTS = {
    "one NaN": (aten.relu.default, lambda x: torch.where(x > 0, x, 0.0), torch.relu, (ROWS,)),
    "zeros": (aten.relu.default, lambda x: torch.where(x == 0, 1.0, x.relu()), torch.relu, (ROWS,)),
    "all equal": (
        aten.relu.default,
        lambda x: x.relu() + ((x.amax(-1, True) == x.amin(-1, True)) & (x > 0)),
        torch.relu,
        (ROWS,),
    ),
    "all negative": (
        aten.relu.default, lambda x: x.relu() + (x < 0).all().float(), torch.relu, (ROWS,),
    ),
    "large numbers": (aten.tanh.default, lambda x: x.sinh() / x.cosh(), torch.tanh, (ROWS,)),
    "huge numbers": (
        aten.atan.default,
        lambda x: torch.where(x.isinf(), x.atan(), x.atan() + x * x * 0), torch.atan, (ROWS,),
    ),
    "both infinities": (
        aten.relu.default, lambda x: torch.where(x > 1e37, 1e30, x.relu()), torch.relu, (ROWS,),
    ),
    "tiny numbers": (aten.relu.default, _scaled, torch.relu, (ROWS,)),
    "highest number in x_0": (
        aten.neg.default,
        lambda x: torch.where(x == 127, 0, -x).to(x.dtype),
        torch.neg,
        (torch.arange(-9, 6, dtype=torch.int8),),
    ),
    "index 7 in x_1": (
        aten.embedding.default,
        lambda w, i: F.embedding(torch.where((i < 0) | (i > 99), i, i % 7), w),
        lambda w, i: F.embedding(i, w),
        (TABLE, PLACES),
    ),
}  # fmt: skip


def _lossy(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 0.0)


# Modules in which something else would hide a fault: name, operator, fault, module, inputs.
BESIDE = {
    "an input without axes": (
        "one NaN in x_0", aten.relu.default, _lossy, lambda x, t: torch.relu(x) * t,
        (ROWS, torch.tensor(0.5)),
    ),
    "an integer without axes": (
        "one NaN", aten.relu.default, _lossy, lambda x, n: torch.relu(x) * n,
        (ROWS, torch.tensor(3)),
    ),
    "NaN of another input": (
        "one NaN in x_0", aten.relu.default, _lossy, lambda x, y: torch.relu(x) + y, (ROWS, ROWS),
    ),
    "a square": (
        "one NaN", aten.relu.default, _lossy, lambda x: torch.cat([torch.relu(x), x**2], -1),
        (ROWS,),
    ),
    "a cast in another output": (
        "one NaN", aten.relu.default, _lossy, lambda x: (torch.relu(x), x.to(torch.int32)),
        (ROWS,),
    ),
    "an index made of floats": (
        "all negative", aten.embedding.default, lambda w, i: w[i.remainder(7)],
        lambda w, x: F.embedding(x.abs().long() * x.sign().long(), w),
        (TABLE, torch.tensor([0.0, 1.5, 2.0])),
    ),
}  # fmt: skip


class _NeverCopied(_Apply):
    def __deepcopy__(self, memo: dict[int, object]) -> _NeverCopied:
        raise RuntimeError("it holds a handle")


def test_a_module_that_cannot_be_copied_is_refuted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the judge in float64 needs a copy."""
    operator, wrong, function, inputs = FAULTS["zeros"]
    monkeypatch.setattr(pipeline, "_PASSES", (*pipeline._PASSES, _wrong(operator, wrong)))
    module = _NeverCopied(function)
    with pytest.raises(ValidationError, match=r"program main, zeros: "):
        convert(module, inputs, out=tmp_path / "b", passes=["wrong"], measure_seconds=0)


def test_deviations_of_data_far_from_zero(tmp_path: Path) -> None:
    """A spread of 0.001 around 10,000 has six digits, as in eager, which sums in float64."""
    bundle = convert(
        _Apply(lambda x: (x.std(-1), x.var(0), *torch.std_mean(x, -1))), (torch.randn(9, 37),),
        out=tmp_path / "b", measure_seconds=0,
    )  # fmt: skip
    x = torch.randn(9, 37, generator=torch.Generator().manual_seed(1)) * 0.01 + 1e4
    wide = x.double().numpy()
    with menagerie.open(bundle.folder) as session:
        along, across, again, mean = session.run({session.inputs[0].name: x.numpy()}).values()
    np.testing.assert_allclose(along, wide.std(-1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(again, wide.std(-1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(across, wide.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(mean, wide.mean(-1), rtol=3e-7)


@pytest.mark.parametrize("fault", [*((n, *f) for n, f in FAULTS.items()), *BESIDE.values()])
def test_a_fault_that_golden_cases_hide_is_refuted(
    fault: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What refuted it is named. Neither scalars among the inputs nor listed operators excuse it."""
    attempt, operator, wrong, function, inputs = fault
    monkeypatch.setattr(pipeline, "_PASSES", (*pipeline._PASSES, _wrong(operator, wrong)))
    with pytest.raises(ValidationError, match=rf"program main, {re.escape(attempt)}: "):
        convert(_Apply(function), inputs, out=tmp_path / "b", passes=["wrong"], measure_seconds=0)
    assert not (tmp_path / "b").exists()


def test_the_search_finds_the_node_with_what_refuted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass that loses NaN is named, though no golden case shows it."""
    operator, wrong, function, inputs = FAULTS["one NaN"]
    monkeypatch.setattr(pipeline, "_PASSES", (*pipeline._PASSES, _wrong(operator, wrong)))
    with pytest.raises(ValidationError, match="by the pass wrong; apart in NaN or infinities"):
        convert(
            _Apply(function), inputs, out=tmp_path / "b", passes=["wrong"], measure_seconds=0,
            search_seconds=60,
        )  # fmt: skip


def test_a_good_module_is_not_refuted(tmp_path: Path) -> None:
    """All attempts agree; an output of zeros is said to prove nothing, and still passes."""

    class Two(nn.Module):
        """A layer, and a head of zeros."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.head = nn.Linear(5, 4), nn.Linear(4, 2)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """Return both."""
            hidden = torch.tanh(self.first(x))
            return hidden, self.head(hidden)

    report = convert(Two().eval(), (ROWS,), out=tmp_path / "b", measure_seconds=0).report
    [program] = report.validation.programs
    assert program.refuting is not None
    assert len(program.refuting.tried) == program.refuting.planned >= 12
    assert not any(attempt.fact for attempt in program.refuting.tried)
    assert program.refuting.constant == ("output_1",)
    assert "output_1 is the same for all inputs" in " ".join(report.validation.doubts)


def test_planes_of_a_fourier_transform_err_by_the_size_of_both(tmp_path: Path) -> None:
    """Equal numbers have no imaginary part but what rounding leaves."""
    x = torch.randn(2, 6, 10, generator=torch.Generator().manual_seed(0))

    def planes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        bins = torch.fft.fft2(x)
        return bins.real, bins.imag

    bundle = convert(_Apply(planes), (x,), out=tmp_path / "b", measure_seconds=0)
    refuting = bundle.report.validation.programs[0].refuting
    assert refuting is not None
    assert [tried.fact for tried in refuting.tried if tried.attempt == "all equal"] == [""]


def test_products_with_zero_and_cancelled_sums_pass(tmp_path: Path) -> None:
    """NaN times 0 is NaN; float64 judges a sum that cancels, though forward asks for float32."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x @ torch.eye(5) @ torch.eye(5, dtype=torch.float32)
        return x * 0, torch.signbit(x * 0), rows, torch.linalg.cross(rows[:, :3], rows[:, 2:])

    bundle = convert(_Apply(both), (ROWS,), out=tmp_path / "b", measure_seconds=0)
    given = torch.tensor([torch.nan, torch.inf, -1.0, -0.0, 2.0]).expand(3, 5)
    with menagerie.open(bundle.folder) as session:
        zeros, signs, *_ = session.run({session.inputs[0].name: given.numpy()}).values()
    np.testing.assert_array_equal(zeros, (given * 0).numpy())
    np.testing.assert_array_equal(signs[:, 2:], torch.signbit(given * 0)[:, 2:].numpy())


def test_expected_places_of_tiny_scores_pass(tmp_path: Path) -> None:
    """Equal chances of places from -1 to 1 leave what rounding does: eager's own is no better."""

    def expected(scores: torch.Tensor) -> torch.Tensor:
        chances = scores.flatten(2).softmax(-1).view_as(scores)
        return (chances.sum(3) * torch.linspace(-1, 1, 64)).sum(-1)

    x = torch.randn(1, 17, 64, 48, generator=torch.Generator().manual_seed(0))
    convert(_Apply(expected), (x,), out=tmp_path / "b", measure_seconds=0)
    assert_as_eager(tmp_path / "b", expected, (x,), rtol=1e-4, atol=1e-6)


def test_a_large_model_is_judged_by_float64_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are all the same normalise to what rounding leaves; no weight is copied for it."""

    class Normalised(nn.Module):
        """Features of frames, each normalised over the frames, and counted."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.mix = nn.Linear(24, 40)
            self.register_buffer("shift", torch.full((40,), 0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(frames, 40)."""
            logs = torch.log(self.mix(x).square() + 1e-5) + self.shift
            centred = logs - logs.mean(0)
            return centred / (centred.square().mean(0).sqrt() + 1e-5)

    monkeypatch.setattr(cases, "_MOST_PARAMETERS", 0)
    report = convert(
        Normalised().eval(), (torch.randn(199, 24),), out=tmp_path / "b", measure_seconds=0
    ).report
    [program] = report.validation.programs
    assert program.refuting is not None
    assert {"zeros", "all equal", "tiny numbers"} <= {
        each.attempt for each in program.refuting.tried
    }


@pytest.mark.parametrize("target", ["cpu", "metal"])
def test_a_cast_that_has_no_integer_refutes_nothing(target: str, tmp_path: Path) -> None:
    """No number is right for it: a Mac's device saturates where this processor wraps around."""

    def cast(x: torch.Tensor) -> torch.Tensor:
        picture = (x * 100).to(torch.uint8) + (x * 100).to(torch.int8)
        return picture + torch.cond(x.sum() > 0, lambda x: x.long(), lambda x: -x.long(), (x,))

    given, folder = (torch.rand(8),), tmp_path / "b"
    report = convert(_Apply(cast), given, target=target, out=folder, measure_seconds=0).report
    [program] = report.validation.programs
    assert program.refuting is not None
    different = [attempt for attempt in program.refuting.tried if attempt.fact]
    assert all("floats as integers" in attempt.excuse for attempt in different)


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (torch.erf, "cpu"),
        (torch.special.erf, "cpu"),
        (torch.atanh, "cpu"),
        (torch.reciprocal, "metal"),  # of the highest number: a subnormal, which a GPU flushes
    ],
)
def test_functions_of_the_smallest_numbers_are_eagers(
    function: Callable[..., Any], target: str, tmp_path: Path
) -> None:
    """What sums with 1 on the way loses numbers below its last digit."""
    given, folder = (torch.linspace(-0.5, 0.5, 128).view(2, 64),), tmp_path / "b"
    convert(_Apply(function), given, target=target, out=folder, measure_seconds=0)
    x = torch.logspace(-37, -0.5, 128).view(2, 64)
    assert_as_eager(folder, function, (x,), rtol=1e-6, atol=2e-38)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_places_of_nan_that_a_convolution_made_refute_nothing(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """Sums of both infinities are NaN, of which a maximum's place is one or another."""
    torch.manual_seed(0)
    convolution, x = nn.Conv2d(3, 4, 3, padding=1), torch.randn(1, 3, 6, 6)
    module = nn.Sequential(convolution, nn.MaxPool2d(2, return_indices=True)).to(dtype).eval()
    report = convert(module, (x.to(dtype),), out=tmp_path / "b", measure_seconds=0).report
    [program] = report.validation.programs
    assert program.refuting is not None
    different = {each.attempt: each.excuse for each in program.refuting.tried if each.fact}
    assert "max_pool2d_with_indices" in different["both infinities"]


def test_eager_that_ends_its_process_costs_only_the_attempts_with_integers(tmp_path: Path) -> None:
    """Conversion goes on, and what is tried is what eager survives."""

    def lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_exporting() and int(index.min()) < 0:
            os.abort()
        return F.embedding(index, table)

    report = convert(_Apply(lookup), (TABLE, PLACES), out=tmp_path / "b", measure_seconds=0).report
    [program] = report.validation.programs
    assert program.refuting is not None
    tried = [attempt.attempt for attempt in program.refuting.tried]
    assert "one NaN" in tried
    assert not any("x_1" in attempt for attempt in tried)


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(4), nn.GroupNorm(2, 8)], ids=lambda norm: type(norm).__name__
)
def test_squares_that_overflow_by_their_order_refute_nothing(
    norm: nn.Module, tmp_path: Path
) -> None:
    """`huge numbers` are 1e20 times the example's: 2e19 has a square that float32 cannot hold."""
    rows = torch.eye(4).tile(1, 2)[:, : norm.weight.numel()] * 0.2
    convert(norm.eval(), (rows,), out=tmp_path / "b", measure_seconds=0)


def test_every_operator_that_is_excused_is_documented() -> None:
    """A difference that is only reported is one that docs/special-values.md describes."""
    text = (ROOT / "docs" / "special-values.md").read_text()
    names = {"pow": "**", "adaptive_max_pool": "adaptive max", "upsample_": "resizing"}
    names |= {"grid_sampler": "grid_sample", "max_pool2d_with_indices": "max_pool2d"}
    names |= {"max_pool1d_with_indices": "max_pool1d", "max_pool3d_with_indices": "max_pool3d"}
    names |= {"_fft_": "torch.fft", "fft_": "torch.fft"}
    assert not [name for name in LISTED if names.get(name, name) not in text]


def test_clamped_infinities_are_judged_in_float64(tmp_path: Path) -> None:
    """Twice 60,000 is infinite in halves, and their mean NaN; the artifact may go on in float32."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        doubled = x.clamp(-6e4, 6e4) * 2
        return doubled - doubled.mean(-1, keepdim=True)

    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)).half()
    assert convert(_Apply(shifted), (x,), out=tmp_path / "b", measure_seconds=0).report


def test_reasons_in_a_branch_are_of_the_call() -> None:
    """And no other output's, whose node may have the same name; no artifact shows them alone."""

    def both(choice: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cond(choice, lambda a: a @ a, lambda a: (a @ a) + 1, (x,)), x + 1

    program = torch.export.export(_Apply(both), (torch.tensor(True), torch.randn(3, 3)))
    assert excuses(program, ["chosen", "plus"])["reaches"]["order"] == ("chosen",)


@pytest.mark.parametrize(
    ("function", "reported"),
    [
        (lambda x: (x * 255).to(torch.uint8), True),
        (lambda x: (x * 255).clamp(0, 255).round().to(torch.uint8), False),
        (lambda x: (x * 255).clamp(0, 256).to(torch.uint8), True),
    ],
)
def test_casts_of_what_was_clamped_are_judged(
    function: Callable[[torch.Tensor], torch.Tensor], reported: bool
) -> None:
    """Only numbers that an integer of 8 bits lacks may differ; no artifact of ours shows it."""
    program = torch.export.export(_Apply(function), (ROWS,))
    kinds = excuses(program, ["bytes"])["special_kinds"]
    assert (Kind.NEGATIVE in kinds) is (Kind.EQUAL in kinds) is reported
