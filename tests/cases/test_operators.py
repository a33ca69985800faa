"""Every device runs the table of operator cases: eager's numbers, or a refusal that says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from case import Case, Refusal, crowded_arguments, may_be_crowded, relaid_arguments
from hypothesis import given, settings
from hypothesis import strategies as st
from shim_device import Device, ShimError, built_kinds, parameters_of, shims
from table import CASES, REFUSALS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shim_device import Handle, Kind


def has(kind: Kind, operator: str) -> bool:
    """Whether the list promises the operator on that device."""
    shim = shims().get(f"aoti_torch_{kind.symbol}_{operator}")
    return shim is not None and kind.target in shim.targets


def on_devices(cases: Iterable[Case]) -> list[Any]:
    """Each case on each device that runs it, as parameters of a test."""
    return [
        pytest.param(kind, case, id=f"{kind.target}-{case}")
        for kind in built_kinds()
        for case in cases
        if case.runs_on(kind.target) and has(kind, case.operator)
    ]


ON_DEVICE = on_devices(CASES)
CROWDED = on_devices([case for case in CASES if may_be_crowded(case)])
ONE_OF_EACH = [
    pytest.param(kind, cases[0], id=f"{kind.target}-{operator}")
    for kind in built_kinds()
    for operator in sorted({case.operator for case in CASES})
    if has(kind, operator)
    and (cases := [c for c in CASES if c.operator == operator and c.runs_on(kind.target)])
]
REFUSED = [
    pytest.param(kind, refusal, id=f"{kind.target}-{refusal}")
    for kind in built_kinds()
    for refusal in REFUSALS
    if kind.target in refusal.targets and has(kind, refusal.operator)
]


def check(device: Device, case: Case, arguments: dict[str, Any]) -> None:
    """Runs a case over such arguments and compares the results with eager's."""
    expected = case.expected(arguments)
    handles = device.operate(case.operator, arguments)
    for handle, wanted in zip(handles, expected, strict=False):
        actual = device.value(handle)
        tolerance = case.tolerance_of(wanted.dtype)
        torch.testing.assert_close(
            actual, wanted, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
        )
        if case.strides and "out" not in arguments:
            assert of_long_axes(device, handle) == strides_of_long_axes(wanted)


def of_long_axes(device: Device, handle: Handle) -> list[int]:
    """A handle's strides along axes of more than one element, which alone place anything."""
    sizes, strides = device.geometry(handle)
    return [s for n, s in zip(sizes, strides, strict=True) if n > 1 and 0 not in sizes]


def strides_of_long_axes(value: torch.Tensor) -> list[int]:
    """The same of a tensor."""
    shape = value.shape
    return [s for n, s in zip(shape, value.stride(), strict=True) if n > 1 and 0 not in shape]


@pytest.mark.parametrize(("kind", "case"), ON_DEVICE)
def test_results_are_eagers(kind: Any, case: Case) -> None:
    """An operator's results are eager's, in eager's layout where the compiler counts on it."""
    check(Device(kind), case, dict(case.arguments))


def check_some(
    kind: Kind, case: Case, some: st.SearchStrategy[dict[str, Any]], examples: int
) -> None:
    """Checks a case over examples of arguments.

    The search is inside a test, not around it: around, Hypothesis nests its settings once more at
    each parameter of the test, and a thousand of them end Python's recursion.
    """

    @settings(max_examples=examples)
    @given(some)
    def holds(arguments: dict[str, Any]) -> None:
        check(Device(kind), case, arguments)

    holds()


@pytest.mark.parametrize(("kind", "case"), ON_DEVICE)
def test_strides_and_offsets_do_not_matter(kind: Any, case: Case) -> None:
    """The values stay eager's wherever and however the operands are laid out in memory."""
    check_some(kind, case, relaid_arguments(case.arguments), examples=3)


@pytest.mark.parametrize(("kind", "case"), CROWDED)
def test_elements_may_share_memory(kind: Any, case: Case) -> None:
    """Expanded operands, and those whose rows overlap as windows do, give eager's values too."""
    check_some(kind, case, crowded_arguments(case), examples=2)


@pytest.mark.parametrize(("kind", "refusal"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(kind: Any, refusal: Refusal) -> None:
    """What does not fit is an error that names the function and the fact."""
    device = Device(kind)
    with pytest.raises(ShimError) as caught:
        device.operate(refusal.operator, refusal.arguments)
    assert str(caught.value).startswith(f"{device.symbol(refusal.operator)}: ")
    assert refusal.fact in str(caught.value)


@pytest.mark.parametrize(("kind", "case"), ONE_OF_EACH)
def test_handles_without_tensors_are_refused(kind: Any, case: Case) -> None:
    """A null handle, or one without a tensor, in the place of any operand is an error by name."""
    device = Device(kind)
    symbol = device.symbol(case.operator)
    parameters = parameters_of(symbol)
    operands = {k: v for k, v in case.arguments.items() if isinstance(v, torch.Tensor)}
    listed = {
        k: v for k, v in case.arguments.items() if ("const AtenTensorHandle*", k) in parameters
    }
    assert operands or listed
    for name in (*operands, *listed):
        optional = ("AtenTensorHandle*", name) in parameters
        # An absent option is null too.
        stand_ins = [device.undefined()] if optional else [device.undefined(), device.null()]
        for stand_in in stand_ins:
            value = [*listed[name], stand_in] if name in listed else stand_in
            with pytest.raises(ShimError, match=f"^{symbol}: a tensor handle is (null|undefined)$"):
                device.operate(case.operator, {**case.arguments, name: value})
