"""Runs a proven bundle on other values than it was proven with, and compares it with eager."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import menagerie
from menagerie.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tests.suites.cases import Call

KINDS = ("zeros", "negative", "extreme")
# The largest error of an element, beside as much of its size and a hundredth of the largest's.
_ERRORS = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
# Whose order of equal values eager leaves open: their places are not compared.
_OPEN = ("topk", "sort", "argsort", "kthvalue")
Inputs = tuple[torch.Tensor, ...]


def others(tensors: Sequence[torch.Tensor], kind: str) -> Inputs:
    """Inputs of the same shapes and other values.

    `zeros`; `negative`: no number above -0.5, or all the same where there is no sign; `extreme`:
    one NaN among floats, the least and the largest of integers by turns, booleans by turns.
    """
    return tuple(_other(t.contiguous().clone(), kind) for t in tensors)


def _other(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "zeros":
        return torch.zeros_like(tensor)
    odd = (torch.arange(tensor.numel()) % 2 == 1).view(tensor.shape)
    if tensor.is_floating_point():
        if kind == "negative":
            return -tensor.nan_to_num(1.0, 2.0, -3.0).abs() - 0.5
        if tensor.numel():
            tensor.view(-1)[tensor.numel() // 2] = float("nan")
        return tensor
    if tensor.dtype is torch.bool:
        return odd if kind == "extreme" else torch.ones_like(tensor)
    ends = torch.iinfo(tensor.dtype)
    if kind == "extreme":
        return torch.where(odd, ends.max, ends.min).to(tensor.dtype)
    if not ends.min:
        return torch.full_like(tensor, 200)
    return -tensor.clamp(-100, 100).abs() - 1


def compare(
    calls: Sequence[Call], bundle: str, log: str, ended: Mapping[str, str], _folder: Path
) -> dict[int, tuple[int, int, str]]:
    """Count, for each call, the sets of values on which the artifact does what eager does.

    Args:
        calls: those that the bundle was made of.
        bundle: its folder.
        log: a file that always names the run under way: a process that dies has ended at that.
        ended: runs that have ended a process before, which are left out.

    Returns:
        By call: how many sets are right, of how many, and how the first of the others differs.
    """
    with menagerie.open(bundle, threads=1) as session, torch.no_grad():
        runs = _Runs(calls, session, Path(log), ended)
        for kind in KINDS:
            runs.all_with(kind)
    return {number: tuple(found) for number, found in enumerate(runs.found)}  # type: ignore[misc]


class _Runs:
    """Runs of a bundle's session, in which one call or all have other values."""

    def __init__(
        self, calls: Sequence[Call], session: Any, log: Path, ended: Mapping[str, str]
    ) -> None:
        self._calls, self._session, self._log, self._ended = calls, session, log, ended
        self._own = [tuple(t.contiguous() for t in call.tensors) for call in calls]
        self.found: list[list[Any]] = [[0, 0, ""] for _ in calls]

    def all_with(self, kind: str) -> None:
        """Try one kind of values in all calls at once; alone what eager or the artifact refuses."""
        given: dict[int, Inputs] = {}
        wanted: dict[int, Inputs] = {}
        for number, call in enumerate(self._calls):
            inputs = others(call.tensors, kind)
            if _equal(inputs, self._own[number]):
                continue
            result = self._eager(number, kind, inputs)
            if isinstance(result, str):
                self._count(number, f"{kind}: ", self._raises(number, kind, inputs, result))
                inputs = (inputs[0], *self._own[number][1:])  # indices and the like as they were
                result = self._eager(number, f"{kind} first", inputs)
            if isinstance(result, tuple):
                given[number], wanted[number] = inputs, result
        results = self._run("all", kind, given) if len(given) > 1 else None
        for number, inputs in given.items():
            answer = results or self._run(str(number), kind, {number: inputs})
            said = (
                answer if isinstance(answer, str) else self._judge(number, wanted[number], answer)
            )
            self._count(number, f"{kind}: ", said)

    def _count(self, number: int, begin: str, said: str | None) -> None:
        if said is None:
            return
        found = self.found[number]
        found[1] += 1
        found[0] += not said
        found[2] = found[2] or (begin + said if said else "")

    def _eager(self, number: int, kind: str, inputs: Inputs) -> Inputs | str | None:
        """Eager's results; what it raises; None where it ends the process."""
        if self._begins(f"eager {number} {kind}"):
            return None
        try:
            return self._calls[number].run([t.clone() for t in inputs])
        except Exception as error:  # noqa: BLE001 - PyTorch's own, of many kinds
            return f"{type(error).__name__}: {error}"

    def _raises(self, number: int, kind: str, inputs: Inputs, eager: str | None) -> str | None:
        if eager is None:
            return None
        if self._begins(f"{number} {kind} raises"):
            return "ends the process, where eager raises"
        answer = self._answer({number: inputs})
        return "" if isinstance(answer, str) else f"answers, where eager raises {eager[:100]}"

    def _run(self, who: str, kind: str, given: Mapping[int, Inputs]) -> Any:
        """The artifact's answer; for `all` None unless it has one."""
        if self._begins(f"{who} {kind}"):
            return None if who == "all" else "ends the process, where eager answers"
        answer = self._answer(given)
        if isinstance(answer, str):
            return None if who == "all" else f"raises, where eager answers: {answer[:160]}"
        return answer

    def _answer(self, given: Mapping[int, Inputs]) -> dict[str, np.ndarray] | str:
        inputs = [t for n, own in enumerate(self._own) for t in given.get(n, own)]
        names = [spec.name for spec in self._session.inputs]
        try:
            found: dict[str, np.ndarray] = self._session.run(
                {name: _array(tensor) for name, tensor in zip(names, inputs, strict=True)}
            )
        except SessionError as error:
            return error.fact
        return found

    def _begins(self, run: str) -> bool:
        """Note a run; whether it has ended a process before."""
        self._log.write_text(json.dumps(run))
        return run in self._ended

    def _judge(self, number: int, wanted: Inputs, answer: Mapping[str, np.ndarray]) -> str:
        coarse = max(_ERRORS.get(t.dtype, 0.0) for t in (*self._calls[number].tensors, *wanted))
        is_open = getattr(self._calls[number].function, "name", "") in _OPEN
        for place, eager in enumerate(wanted):
            if is_open and eager.dtype is torch.int64 and (place or len(wanted) == 1):
                continue
            found = _tensor(answer[f"call_{number}_outputs_{place}"], eager.dtype)
            if eager.numel() and (said := difference(found, eager, coarse)):
                return f"result {place} {said}"
        return ""


def difference(found: torch.Tensor, eager: torch.Tensor, error: float) -> str:
    """Where two results differ; empty: finite elements are within `error`, others the same."""
    if found.shape != eager.shape:
        return f"has shape {list(found.shape)}, eager's {list(eager.shape)}"
    if not eager.is_floating_point():
        wrong = found != eager
    else:
        a, b = found.double(), eager.double()
        scale = b[b.isfinite()].abs().max() if b.isfinite().any() else 0.0
        near = (a - b).abs() <= error * (1 + b.abs() + scale / 100)  # where large terms cancel
        wrong = ~torch.where(b.isfinite(), near, (a == b) | (a.isnan() & b.isnan()))
    if not wrong.any():
        return ""
    place = wrong.nonzero()[0].tolist()
    a, b = found[tuple(place)].item(), eager[tuple(place)].item()
    return f"at {place}: eager {b:.6g}, artifact {a:.6g}, {int(wrong.sum())} of {wrong.numel()}"


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.uint16).numpy()
    return tensor.numpy()


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(dtype) if dtype is torch.bfloat16 else tensor
