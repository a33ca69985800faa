"""Refuse state that Python keeps between calls, which no artifact has, by name and line.

A module is called twice on its example, from the same buffers and random seed. If a value that it
holds changes, it is also called in other orders and on other inputs. State is refused if results
depend on it, or if it is a tensor that is written in place, which torch.export cannot record.
Tables that a first call makes, notes of the last call and counters that nothing reads are harmless.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
import traceback
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map_only

from transforms.goldens.cases import run_exactly
from transforms.goldens.examples import redrawn
from transforms.graph.call_signature import named_tensors
from transforms.graph.layouts import content_digest
from transforms.graph.record import NOT_THEIRS
from zoo.errors import ExportError
from zoo.sources.random_weights import torch_threads

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name, nested or constant
Keys = tuple[Any, ...]  # path from the module: attributes, items, names in a function
Contents = dict[Keys, tuple[object, object]]  # each object and its value

_MOST_CALLED = (
    5_000_000  # numbers in parameters; larger modules that did not change are called once
)
_ROUNDS = 4  # of three calls each, for a module that changes with every call, and ...
_SMALL, _MORE_ROUNDS = 20_000, 43  # ... for one with at most that many numbers in parameters
_LONGER = 64  # factor by which a growing list is lengthened
_FAR = 10**6  # added to a counter, to trigger what happens once in many calls
_MOST_COPIED = 2**20  # numbers in a parameter; larger ones are shared with copies
_OPAQUE = ("torch.", "logging.", "threading.", "builtins.")  # modules of objects not searched
_CLOSED = (*_OPAQUE, "torchvision.", "transformers.")  # modules of functions and classes not read
_UNSEEN = "Keep state in buffers, and pass noise as an input"
_STEP = (
    "Only buffers are kept: self.register_buffer('state', torch.zeros(...)), written in place, "
    "and calls=3 for a proof of three calls in a row. Or pass it in and return it"
)


@torch_threads(1)  # a fork may follow, which has only this thread
def refuse_python_state(place: str, module: nn.Module, inputs: Inputs, prefix: str = "") -> None:
    """Raise ExportError if results depend on state in Python; names lose the prefix.

    If eager fails on the example, or weights are lazy, later stages report it.
    """
    if any(map(is_lazy, module.parameters())):
        return
    used = _copied(module)
    before, [first] = _contents(used), _run(used, inputs)
    middle, weights = _contents(used), sum(p.numel() for p in used.parameters())
    if weights > _MOST_CALLED and not _changes(before, middle):
        return  # a proof calls it again
    drawn = _noise()
    [second] = _run(used, inputs)
    evolves = _changes(middle, _contents(used))
    if _noise() != drawn and _draws(used, inputs):
        fact = "draws numbers from Python's or NumPy's random, without a seed of its own"
        raise ExportError(place, fact, "Pass the noise as an input, or make it in __init__")
    changed = evolves or _changes(before, middle)
    alike = _equal(first, second)
    if not first or (alike and not changed):
        return
    written = [k for k, (old, new) in changed.items() if old is new and isinstance(new, Tensor)]
    rounds = (_MORE_ROUNDS if weights <= _SMALL else _ROUNDS) if evolves else 1
    is_harmless = alike and not written and _is_memory(module, used, inputs, rounds)
    if is_harmless and not _is_read(used, inputs, evolves):
        return
    if any(b is None for part in module.modules() for b in part._buffers.values()):
        return  # the export names a buffer that begins as None
    if not changed:
        if _equal(first, second, cancel=True):
            return
        fact = "gives other results when it is called with the same inputs again"
        raise ExportError(place, fact, _UNSEEN)
    grown = (k[:-1] if isinstance(_at(used, k[:-1]), (list, deque)) else k for k in changed)
    lines = _lines(_copied(module), inputs, [*(written or dict.fromkeys(grown))][:4])
    facts = [f"\n  {_name(k).removeprefix(prefix)!r} is changed by {lines[k]}" for k in lines]
    fact = f"keeps state in Python, which an artifact lacks:{''.join(facts)}"
    raise ExportError(place, fact, _STEP)


def _copied(module: nn.Module) -> nn.Module:
    shared: dict[int, Any] = {id(p): p for p in module.parameters() if p.numel() > _MOST_COPIED}
    try:
        return copy.deepcopy(module, shared)
    except Exception:  # noqa: BLE001 - whatever keeps it from being copied, it is called itself
        return module


def _run(module: nn.Module, *calls: Inputs, fresh: bool = False) -> list[list[Tensor]]:
    """Return results of consecutive calls (empty for a failing one), which leave buffers unchanged.

    If `fresh`, only buffers are carried from call to call.
    """
    buffers = {n: value.detach().clone() for n, value in module.named_buffers()}

    def call(_: object, inputs: Inputs) -> dict[str, Tensor]:
        given = tree_map_only(Tensor, Tensor.clone, inputs)
        called = _copied(module) if fresh else module
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            result = named_tensors(functional_call(called, buffers, *given, tie_weights=False))
        return {str(n): t.clone() for n, t in enumerate(tree_leaves(result)) if _is_plain(t)}

    results: list[list[Tensor]] = []
    for inputs in calls:
        results.append([])
        with suppress(Exception):  # a model may raise anything
            results[-1] += run_exactly(partial(call, inputs=inputs), {}).values()
    return results


def _is_plain(thing: Any) -> bool:
    known = type(thing) in {Tensor, nn.Parameter} and not thing.is_nested
    return known and thing.layout is torch.strided and thing.device.type == "cpu"


def _equal(one: list[Tensor], other: list[Tensor], *, cancel: bool = False) -> bool:
    """Return whether results are equal; with `cancel`, up to a part of the largest element."""

    def bounds(a: Tensor) -> tuple[float, float]:
        is_plain = not cancel or not a.numel()
        return (1e-4, 1e-7) if is_plain else (0.0, 1e-5 * float(a.nan_to_num(0, 0, 0).abs().max()))

    return len(one) == len(other) and all(
        content_digest(a) == content_digest(b)
        or (a.shape == b.shape and a.is_floating_point()
            and torch.allclose(a.double(), b.double(), *bounds(a), equal_nan=True))
        for a, b in zip(one, other, strict=True)
    )  # fmt: skip


def _other(tensor: Tensor) -> Tensor:
    floating = tensor.is_floating_point()
    return tensor * -2 if floating else redrawn(tensor, tensor.shape, seed="other")


def _is_memory(module: nn.Module, used: nn.Module, inputs: Inputs, rounds: int) -> bool:
    """Return whether results are the same whatever was called before."""
    calls = inputs, tree_map_only(Tensor, _other, inputs), inputs
    known = _run(module, *calls, fresh=True)  # as an artifact would
    return all(all(map(_equal, known, _run(used, *calls))) for _ in range(rounds))


def _is_read(used: nn.Module, inputs: Inputs, evolving: Iterable[Keys]) -> bool:
    """Return whether results differ if values that every call changes are set far away."""
    [known] = _run(used, inputs)
    for place in dict.fromkeys(keys[:-1] for keys in evolving):
        held = _at(used, place)
        if isinstance(held, (list, deque)):
            old = list(held)
            _refill(held, [_moved(value) for value in old] * _LONGER)
            [result] = _run(used, inputs)
            _refill(held, old)
            if not _equal(known, result):
                return True
    for *path, key in evolving:
        holder = _at(used, path)
        value = _at(holder, (key,))
        numbers = [value + _FAR, -value - _FAR] if type(value) in {int, float} else []
        for other in [*numbers, *([_moved(value)] if _is_plain(value) else [])]:
            _write(holder, key, other)
            [result] = _run(used, inputs)
            _write(holder, key, value)
            if not _equal(known, result):
                return True
    return False


def _refill(held: list[Any] | deque[Any], values: Iterable[Any]) -> None:
    held.clear()
    held.extend(values)


def _moved(value: Any) -> Any:
    """Return a tensor with other numbers, none of them 0; return anything else unchanged."""
    return _other(value) + 1 if _is_plain(value) and value.dtype != torch.bool else value


def _write(holder: Any, key: Any, value: object) -> None:
    """Set one of `_parts(holder)` to another value, if it is writable."""
    with suppress(AttributeError, IndexError, TypeError, ValueError):
        if isinstance(holder, (dict, list, deque)):
            holder[key] = value
        elif isinstance(holder, FunctionType):
            names = holder.__code__.co_freevars
            if key in names and holder.__closure__:
                holder.__closure__[names.index(key)].cell_contents = value
            elif key in holder.__globals__:
                holder.__globals__[key] = value
        else:
            kinds = [holder, *type(holder).__mro__]
            setattr(next(k for k in kinds if key in getattr(k, "__dict__", ())), key, value)


def _noise() -> object:
    """Return the state of the random generators that Python and NumPy share globally."""
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - the old one is shared


def _draws(used: nn.Module, inputs: Inputs) -> bool:
    """Return whether another call draws too, which rules out another thread."""
    before = _noise()
    _run(used, inputs)
    return _noise() != before


def _contents(module: nn.Module) -> Contents:
    """Return a module's contents besides buffers; `things` grows while it is read."""
    contents, seen, things = Contents(), set[int](), [(Keys(), module)]
    for keys, thing in things:
        parts = _parts(thing)
        if not parts:
            contents[keys] = thing, _value(thing)
        elif id(thing) not in seen:
            seen.add(id(thing))
            things += [((*keys, key), part) for key, part in parts.items()]
    return contents


def _changes(one: Contents, other: Contents) -> dict[Keys, tuple[object, object]]:
    pairs = {k: (one.get(k, (0, None)), other.get(k, (1, None))) for k in {**other, **one}}
    return {k: (old, new) for k, ((old, was), (new, value)) in pairs.items() if was != value}


def _parts(thing: Any) -> dict[Any, Any]:
    """Return an object's parts, by name or position; nothing if it is not searched."""
    if isinstance(thing, dict):
        return dict(thing)
    if isinstance(thing, (list, tuple, deque)):
        return dict(enumerate(thing))
    if isinstance(thing, MethodType):
        return {"__self__": thing.__self__, "__func__": thing.__func__}
    if isinstance(thing, partial):
        return {"func": thing.func, "args": thing.args, "keywords": thing.keywords}
    is_module, is_function = isinstance(thing, nn.Module), isinstance(thing, FunctionType)
    is_opaque = _is_from(thing, _CLOSED) if is_function else _is_from(type(thing), _OPAQUE)
    is_leaf = isinstance(thing, (Tensor, type)) or hasattr(thing, "bit_generator")
    if is_leaf or (is_opaque and not is_module):
        return {}
    held = getattr(thing, "__dict__", {}).items()
    own = _of_class(thing) | {n: v for n, v in held if n != "_buffers"}
    if is_module:
        own.setdefault("forward", getattr(type(thing), "forward", None))  # TorchScript's raises
    with suppress(TypeError, ValueError):  # not a function, or a cell is still empty
        closed = inspect.getclosurevars(thing)
        kept = {"__defaults__": thing.__defaults__, "__kwdefaults__": thing.__kwdefaults__}
        own |= {**kept, **closed.globals, **closed.nonlocals}
    return own


def _at(thing: Any, keys: Iterable[Any]) -> Any:
    return reduce(lambda holder, key: _parts(holder).get(key), keys, thing)


def _is_from(thing: Any, homes: tuple[str, ...]) -> bool:
    return f"{thing.__module__}.".startswith(homes)


def _of_class(thing: Any) -> dict[str, Any]:
    """Return the values that an object's classes hold, and those in its slots."""
    own = dict[str, Any]()
    for kind in type(thing).__mro__:
        if _is_from(kind, _CLOSED):
            continue
        for name, value in vars(kind).items():
            if isinstance(value, MemberDescriptorType):
                own[name] = getattr(thing, name, None)
            elif not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
                own.setdefault(name, value)
    return own


def _value(thing: Any) -> object:
    """Return a value that differs once an object has changed."""
    if _is_plain(thing):
        return content_digest(thing)
    if isinstance(thing, (list, deque)):
        return tuple(map(id, thing))
    if hasattr(type(thing), "tobytes"):  # NumPy's; torch.ops has any name
        return thing.tobytes()
    if hasattr(type(thing), "bit_generator"):  # NumPy's random generators
        return repr(thing.bit_generator.state)
    if hasattr(type(thing), "__next__"):
        with suppress(TypeError):  # a generator does not expose its position
            return repr(thing.__reduce__())
    return repr(thing) if type(thing).__module__ in {"builtins", "itertools"} else id(thing)


def _lines(module: nn.Module, inputs: Inputs, changed: list[Keys]) -> dict[Keys, str]:
    """Return the user's line after which each object first differs, by a call under a tracer."""
    lines, last, values = dict[Keys, str](), "a call", dict[Keys, object]()

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal last
        for keys in changed:
            value = _value(_at(module, keys))
            if values.setdefault(keys, value) != value:
                lines.setdefault(keys, last)
        # After a return, execution continues on its caller's line.
        for user, number in traceback.walk_stack(frame.f_back if event == "return" else frame):
            file = user.f_code.co_filename
            if not file.startswith(NOT_THEIRS):
                code = traceback.FrameSummary(file, number, "").line
                last = f"{'/'.join(Path(file).parts[-3:])}:{number} ({code})"
                return trace if user is frame else None
        return None

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        _run(module, inputs)
    finally:
        sys.settrace(outer)
    return {keys: lines.get(keys, "a call") for keys in changed}


def _name(keys: Keys) -> str:
    """Return a path such as `cell.hidden` or `history[0]`."""
    hidden = ("_parameters", "_modules", "forward", "__self__", "args", "__kwdefaults__")
    shown = (k for k in keys if k not in hidden)
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in shown).lstrip(".")
