"""Checks of `transforms.convert`'s arguments that need neither torch nor a module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from zoo.errors import UsageError

_NAMES = 'lists of names: {"inputs": ["x"], "outputs": ["y"]}'
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {  # of arguments, and the advice
    "inputs": ((Sequence, Mapping), "a tuple of examples, (x,), or examples by name"),
    "kwargs": (Mapping, "inputs by name"),
    "names": (Mapping, _NAMES),
    "calibration": (Sequence, "a list of samples, each a tuple of all inputs"),
    "tolerances": (Mapping, 'them by dtype: {"float32": 1e-3}'),
    "accuracy": (Mapping, "its `data`, `metric` and largest loss by name"),
    "passes": (Sequence, "a list of names"),
    "keep": (Sequence, "a list of names of layers"),
    "model": (str, "its name"),
    "licence": (str, "its SPDX identifier"),
    "progress": (Callable, "a function that takes a line of text"),  # type: ignore[dict-item]
}
_MOST_THREADS = 256  # as on the command line


def check_kinds(place: str, values: Mapping[str, object]) -> None:
    """Raise UsageError at `place` for an argument of the wrong type."""
    for name, (kind, step) in _KINDS.items():
        value = values.get(name)
        fits = isinstance(value, kind) and (kind is str or not isinstance(value, str))
        if not fits and (value is not None or name == "inputs"):
            raise UsageError(place, f"`{name}` is of type {type(value).__name__}", f"Give {step}")
    shapes = values.get("dynamic_shapes")
    if isinstance(shapes, (str, int, float)):
        step = "Give sizes by input, in order: ({0: torch.export.Dim('n', min=1, max=64)},)"
        raise UsageError(place, f"`dynamic_shapes` is of type {type(shapes).__name__}", step)
    for name in ("inputs", "kwargs", "names"):
        of = values.get(name)
        odd = [key for key in of if not isinstance(key, str)] if isinstance(of, Mapping) else []
        if odd:
            raise UsageError(place, f"`{name}` has the key {odd[0]!r}", "Use strings as keys")
    named = values.get("names")
    for of in named.values() if isinstance(named, Mapping) else ():
        if of is not None and (isinstance(of, str) or not isinstance(of, Sequence)):
            fact = f"`names` has a {type(of).__name__} where a list of them goes"
            raise UsageError(place, fact, f"Give {_NAMES}")


def check_time(place: str, threads: int, **seconds: float) -> None:
    """Raise UsageError at `place` for a number of threads or seconds that is out of range."""
    if type(threads) is not int or not 0 < threads <= _MOST_THREADS:
        fact = f"there are no {threads!r} threads"
        raise UsageError(place, fact, f"Give `threads` from 1 to {_MOST_THREADS}")
    for name, value in seconds.items():
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise UsageError(place, f"`{name}` is {value!r}", "Give seconds, 0 or more")
