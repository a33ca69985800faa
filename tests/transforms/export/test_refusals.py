"""What no target can run is refused before lowering, by the module's own names."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch
from torch import nn

from transforms.export.prepare import Program, prepare_module
from transforms.export.trace import trace
from transforms.graph.call_signature import state_of
from zoo.errors import ExportError

X = torch.randn(3, 4)


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Write the buffer, then read it."""
        self.calls += 1
        return x * self.calls


class Holder(nn.Module):
    """Another module, one floor down, so that there is a path to name."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        """What the inner module returns."""
        return self.inner(x)


def module_of(function: Any) -> nn.Module:
    """A module that calls a function."""

    class Made(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    return Holder(Made())


def refusal(module: nn.Module, x: torch.Tensor = X) -> str:
    """What `trace` says of a module."""
    with pytest.raises(ExportError) as raised:
        trace("program main", module, (x,))
    return str(raised.value)


def test_buffers_written_in_training_are_named_with_module_and_line() -> None:
    """What a module writes in training mode is not meant to be kept; in eval mode it is state."""
    text = refusal(Holder(Counter()))
    assert "buffer 'inner.calls' is written by inner (" in text
    assert re.search(r"test_refusals\.py:\d+, aten\.add", text)
    assert "by a module in training mode. Call .eval() first" in text
    assert state_of(trace("program main", Holder(Counter()).eval(), (X,))) == ("inner.calls",)


def test_written_parameters_are_refused() -> None:
    """Parameters are weights, which all sessions of a bundle share."""

    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.add_(1)
            return x * self.weight

    text = refusal(Holder(Trained()).eval())
    assert "parameter 'inner.weight' is written by inner (" in text
    assert "only buffers keep state between calls" in text


def test_batch_norm_in_training_mode_is_a_written_buffer() -> None:
    """The commonest case: eval() was forgotten. All three buffers are reported at once."""
    text = refusal(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert f"buffer '1.{name}' is written by 1 (" in text
    assert "Call .eval()" in text


def test_written_inputs_are_refused() -> None:
    """The caller's memory is read only."""
    text = refusal(module_of(lambda x: x.add_(1)))
    assert "input 'x' is written by inner (" in text
    assert ".clone()" in text


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x + torch.randn(3, 4), "aten.randn.default"),
        (torch.bernoulli, "aten.bernoulli"),
        (lambda x: torch.dropout(x, 0.5, train=True), "aten."),
        (lambda x: torch.randint(5, (3,)) + x[:, 0], "aten.randint"),
    ],
)
def test_random_numbers_are_refused(function: Any, operator: str) -> None:
    """Two runs would differ, and no golden case could prove either."""
    text = refusal(module_of(function))
    assert "random numbers are drawn by inner (" in text
    assert operator in text
    assert "Pass the noise as an input" in text


def test_a_line_that_runs_twice_is_named_once() -> None:
    """A loop's draws have one place in the user's file."""
    text = refusal(module_of(lambda x: sum(x.bernoulli(p) for p in (0.1, 0.2, 0.3))))
    assert text.count("random numbers are drawn by inner (") == 1


def test_noise_that_is_given_is_no_fault() -> None:
    """As ViT-MAE has it: drawn where none is given, and an input where one is."""

    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
            noise = torch.rand(x.shape[0], 4) if noise is None else noise
            return x.gather(1, noise.argsort(1))

    assert re.search(
        r"random numbers are drawn by inner \(\S*test_refusals\.py:\d+, aten\.rand\.default\)\. "
        r"Pass the noise as an input",
        refusal(Holder(Masked())),
    )
    given = prepare_module("main", Program(Masked(), (X,), {"noise": torch.rand(3, 4)}))
    assert [spec.name for spec in given.signature.inputs] == ["x", "noise"]


def test_random_numbers_that_nothing_uses_are_no_fault() -> None:
    """Speech encoders of transformers draw for a layer drop that is off."""

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        return x + 1

    trace("program main", module_of(function), (X,))


def test_sizes_that_depend_on_values_are_refused() -> None:
    """The export allows them; no bundle can say what comes out."""
    text = refusal(module_of(lambda x: x[x > 0]))
    assert "a size depends on values of a tensor at inner (" in text
    assert re.search(r"test_refusals\.py:\d+", text)
    assert "Pad to a fixed size" in text


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x / torch.ones(()).exp().item(), "number is read out.* make a constant a Pyth"),
        (torch.unique, "a size depends on values of a tensor .*_unique2.*Pad"),
        (lambda x: torch.combinations(x[0]), "Make tables of nonzero or combin"),
        (
            lambda x: x.narrow(1, (x > 0).sum(), 1),
            "a size or a place is read out of a tensor. Make tables",
        ),
        (lambda x: x.clone()[::2].fill_diagonal_(0), "Write through one view at a time"),
        (
            lambda x: nn.GRU(3, 2)(nn.utils.rnn.pack_sequence([x, x]))[1],
            "pad and mask sequences, and do not pack them",
        ),
    ],
)
def test_what_values_decide_is_refused_with_what_to_do_instead(function: Any, words: str) -> None:
    """A number, a size, a table and packed sequences each have a way of their own."""
    with pytest.raises(ExportError, match=words):
        trace("program main", Holder(function), (torch.randn(2, 3),))


def test_branches_on_values_are_refused_with_their_line(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """torch.export gives up itself; what it says is put into words, and not printed besides."""
    text = refusal(module_of(lambda x: x + 1 if x.sum() > 0 else x))
    assert capfd.readouterr() == ("", "")
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert "depends on values" in text
    assert re.search(r"test_refusals\.py:\d+", text)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.complex(x, x), "output 0 is of torch.complex64"),
        (lambda x: x.to(torch.complex128), "output 0 is of torch.complex128"),
        (lambda x: (x + 1, x.shape[0]), "output 1 is 3, not a tensor"),
        (lambda _: (None, None), "it returns nothing. Return at least one tensor"),
    ],
)
def test_results_that_artifacts_cannot_hold_are_refused(function: Any, words: str) -> None:
    """Dtypes and things that the format does not know, by position."""
    assert words in refusal(module_of(function))


def test_a_dynamic_size_is_no_result() -> None:
    """Nor what is computed of one: no line of torch's own stands for it."""
    sizes = ({0: torch.export.Dim("rows", min=2, max=9)},)
    with pytest.raises(
        ExportError, match=r"output 1 is a size or another number, not a tensor\. L"
    ):
        trace("program main", module_of(lambda x: (x, 2 * x.shape[0])), (X,), shapes=sizes)


def test_inputs_of_unknown_dtypes_are_refused() -> None:
    """By name."""
    text = refusal(module_of(lambda x: x.abs()), X.to(torch.complex64))
    assert "input 0 is of torch.complex64" in text
    assert ": x." in text


def test_all_faults_are_reported_at_once() -> None:
    """One round through export is enough to know what is to be done."""

    class Both(Counter):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.rand(4)

    text = refusal(Both())
    assert "buffer 'calls'" in text
    assert "random numbers" in text


def test_programs_that_were_exported_elsewhere_are_looked_at_too() -> None:
    """An ExportedProgram that writes its input, as a person hands it over."""
    program = torch.export.export(module_of(lambda x: x.add_(1)), (X,), strict=False)
    with pytest.raises(ExportError, match="input 'x' is written"):
        prepare_module("main", Program(program))


class _Phase(nn.Module):
    """Turns a complex number in a buffer on, at each call."""

    phase: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("phase", torch.ones(3, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number's two parts."""
        self.phase.mul_(torch.polar(torch.ones_like(x), x))
        return torch.view_as_real(self.phase)


def test_complex_state_is_refused_by_its_name() -> None:
    """What to keep in its place is said."""
    said = refusal(Holder(_Phase()).eval())
    assert "buffer 'inner.phase' of torch.complex64 is written by inner" in said
    assert "Keep torch.view_as_real of it" in said
