"""State that Python keeps between calls, which no artifact has: refused by name and line.

A module is called twice on its example, from the same buffers and random seed. Where nothing that
it holds has changed and both results are equal, it keeps nothing. Else it is called in other orders
and on other inputs. What changes is refused where results do, and where it is a tensor written in
place, which torch.export cannot record. What leaves all results as they were is no state: tables
that a first call makes, `functools.cache`, notes of the last call, a counter that nothing reads.

Looked at are attributes of all submodules, of their classes and of objects that they hold, nested
lists and dictionaries, and what functions close over, have for defaults or name among globals.
"""

from __future__ import annotations

import copy
import inspect
import linecache
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_map_only,
    tree_unflatten,
)

from transforms.bundle import content_digest
from transforms.export.call_signature import named_tensors
from transforms.goldens.cases import run_exactly
from transforms.goldens.examples import redrawn
from transforms.graph.record import NOT_THEIRS
from zoo.errors import ExportError
from zoo.sources.random_weights import torch_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name, nested or constant
Keys = tuple[Any, ...]  # from the module on: attributes, items, names in a function
Results = list[Tensor] | str  # or why a call failed

_HASHED = 2**16  # bytes; larger tensors are summed up
_ROUNDS = 4  # of three calls each, of a module that changes with every call
_MOST_CALLED = (
    5_000_000  # numbers in parameters: of larger ones that did not change, no second call
)
_MOST_COPIED = 200_000_000  # numbers in parameters: 0.8 GB
_OPAQUE = ("torch.", "logging.", "threading.", "builtins.")  # whose things are not opened
_VALUES = (int, float, complex, str, bytes, type(None), torch.dtype)
_NAMED = (int, float, dict, list, set, deque, Tensor, FunctionType)  # of globals and classes
_UNNAMED = {"_parameters", "_modules", "__func__", "__self__", "__wrapped__"}
_NONE = (0, None)
_UNSEEN = "Keep state in buffers, and pass noise as an input"


@torch_threads(1)  # a fork may follow, which has this thread alone
def refuse_python_state(place: str, module: nn.Module, inputs: Inputs, prefix: str = "") -> None:
    """Raise ExportError where results depend on what Python keeps from call to call.

    Args:
        place: the program, in errors.
        module: stays as it is, but for what closures, classes and globals hold.
        inputs: an example; where eager fails on it, later stages say so.
        prefix: of names that messages leave out.
    """
    if any(map(is_lazy, module.parameters())):
        return  # torch.export says so
    used = _copied(module)
    before, [first] = _contents(used), _run(used, inputs)
    middle = _contents(used)
    large = sum(p.numel() for p in used.parameters()) > _MOST_CALLED
    if isinstance(first, str) or (large and not _changes(before, middle)):
        return
    [second] = _run(used, inputs)
    alike = _equal(first, second)
    if alike and not _changes(before, middle):
        return
    after = _contents(used)
    changed = _changes(middle, after) or _changes(before, middle)
    written = [
        k for k in changed if isinstance(after.get(k, _NONE)[1], bytes)  # of a tensor
        and before.get(k, _NONE)[0] == after[k][0]
    ]  # fmt: skip
    if alike and not written and _is_memory(module, used, inputs, evolves=middle != after):
        return
    if not changed:
        fact = "gives other results when it is called with the same inputs again"
        raise ExportError(place, fact, _UNSEEN)
    grown = (k[:-1] if k not in before and isinstance(k[-1], int) else k for k in changed)
    named = {k: _named(k).removeprefix(prefix) for k in [*(written or dict.fromkeys(grown))][:4]}
    lines = _lines(_copied(module), inputs, [*named])
    facts = "".join(f"\n  {named[k]!r} is changed by {lines.get(k, 'a call')}" for k in named)
    buffer = next(iter(named.values())).split(".")[-1].split("[")[0].strip("_")
    step = (
        f"Only buffers are kept: self.register_buffer({buffer!r}, torch.zeros(...)), written in "
        "place, and calls=3 for a proof of three calls in a row. Or pass it in and return it"
    )
    raise ExportError(place, f"keeps state in Python, which an artifact lacks:{facts}", step)


def _copied(module: nn.Module) -> nn.Module:
    weights = list(module.parameters())
    shared = sum(p.numel() for p in weights) > _MOST_COPIED
    try:
        return copy.deepcopy(module, {id(p): p for p in weights if shared})
    except Exception:  # noqa: BLE001 - whatever keeps it from being copied, it is called itself
        return module


def _run(module: nn.Module, *calls: Inputs, fresh: bool = False) -> Iterator[Results]:
    """Results of calls in a row, from its buffers as they are, which stay so.

    Where it is fresh, these alone go on from call to call.
    """
    buffers = {n: value.detach().clone() for n, value in module.named_buffers()}

    def call(given: Mapping[str, Tensor], leaves: list[Any], spec: TreeSpec) -> dict[str, Tensor]:
        mixed = [given.get(str(n), leaf) for n, leaf in enumerate(leaves)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            called = _copied(module) if fresh else module
            result = torch.func.functional_call(called, buffers, *tree_unflatten(mixed, spec))
        found = enumerate(tree_leaves(named_tensors(result)))
        return {str(n): value.clone() for n, value in found if isinstance(value, Tensor)}

    for inputs in calls:
        leaves, spec = tree_flatten(inputs)
        tensors = {str(n): leaf for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        try:
            yield list(run_exactly(partial(call, leaves=leaves, spec=spec), tensors).values())
        except Exception as error:  # noqa: BLE001 - a model may raise whatever it likes
            yield f"{type(error).__name__}: {error}"


def _equal(one: Results, other: Results) -> bool:
    if isinstance(one, str) or isinstance(other, str) or len(one) != len(other):
        return one == other
    plain = [p for p in zip(one, other, strict=True) if all(map(_is_plain, p))]
    return all(
        content_digest(a) == content_digest(b)
        or (a.shape == b.shape and a.is_floating_point()
            and torch.allclose(a.double(), b.double(), 1e-4, 1e-7, equal_nan=True))
        for a, b in plain
    )  # fmt: skip


def _is_plain(thing: Any) -> bool:
    known = type(thing) in {Tensor, nn.Parameter} and not thing.is_nested
    return known and thing.layout is torch.strided and thing.device.type == "cpu"


def _is_memory(module: nn.Module, used: nn.Module, inputs: Inputs, *, evolves: bool) -> bool:
    """Whether no result depends on what was called before, in whichever order."""
    other = tree_map_only(Tensor, lambda t: redrawn(t, t.shape, seed="other"), inputs)
    other = tree_map_only(Tensor, lambda t: t * -2 if t.is_floating_point() else t, other)
    known = list(_run(module, inputs, other, inputs, fresh=True))  # as an artifact would
    rounds = (_run(used, inputs, other, inputs) for _ in range(_ROUNDS if evolves else 1))
    return all(all(map(_equal, known, found)) for found in rounds)


def _contents(module: nn.Module) -> dict[Keys, tuple[int, object]]:
    """What it holds, without its buffers: each thing's id and value, by the first way to it."""
    found: dict[Keys, tuple[int, object]] = {}
    seen, waiting = set[int](), deque[tuple[Keys, object]]([((), module)])
    while waiting:
        keys, thing = waiting.popleft()
        if isinstance(thing, _VALUES):
            found[keys] = id(thing), (type(thing), thing)
        elif id(thing) not in seen:
            seen.add(id(thing))
            parts = _parts(thing)
            waiting.extend(((*keys, key), part) for key, part in parts.items())
            if not parts:
                found[keys] = id(thing), _value(thing)
    return found


def _changes(one: Mapping[Keys, Any], other: Mapping[Keys, Any]) -> list[Keys]:
    return [k for k in {**other, **one} if one.get(k, _NONE)[1] != other.get(k, _NONE)[1]]


def _parts(thing: Any) -> dict[Any, Any]:
    """What can be changed in a thing, by name or position; empty if it is opened no further."""
    if isinstance(thing, dict):
        return {k if isinstance(k, (str, int)) else repr(k): v for k, v in thing.items()}
    if isinstance(thing, (list, tuple, deque)):
        return dict(enumerate(thing))
    if isinstance(thing, (MethodType, partial)):
        names = ("__func__", "__self__", "func", "args", "keywords")
        return {n: getattr(thing, n) for n in names if hasattr(thing, n)}
    home = thing.__module__ if isinstance(thing, FunctionType) else type(thing).__module__
    is_opaque = f"{home}.".startswith(_OPAQUE) and not isinstance(thing, nn.Module)
    if is_opaque or isinstance(thing, (*_VALUES, Tensor, type)):
        return {}
    own: dict[Any, Any] = {}
    for each in type(thing).__mro__[::-1]:
        if not f"{each.__module__}.".startswith(_OPAQUE):
            own |= {n: v for n, v in vars(each).items() if isinstance(v, _NAMED)}
            slots = getattr(each, "__slots__", ())
            own |= {n: getattr(thing, n) for n in slots if hasattr(thing, n)}
    own |= getattr(thing, "__dict__", {})
    if isinstance(thing, FunctionType):
        own |= {"__defaults__": thing.__defaults__, "__kwdefaults__": thing.__kwdefaults__}
        with suppress(ValueError):  # of a cell that is empty yet
            closed = inspect.getclosurevars(thing)
            own |= {n: v for n, v in closed.globals.items() if isinstance(v, _NAMED)}
            own |= closed.nonlocals
    return {n: v for n, v in own.items() if n != "_buffers"}


def _value(thing: Any) -> object:
    """What tells a thing from what it was before."""
    if isinstance(thing, _VALUES):
        return type(thing), thing
    if _is_plain(thing):
        return content_digest(thing) if thing.nbytes < _HASHED or thing.nbytes % 8 else _sum(thing)
    if hasattr(thing, "tobytes"):  # NumPy's
        return thing.tobytes()
    return repr(thing) if type(thing).__module__ in {"builtins", "itertools"} else id(thing)


def _sum(weights: Tensor) -> bytes:
    """Return a sum over all bits, ten times as fast as a hash."""
    words = weights.detach().contiguous().view(-1).view(torch.uint8).view(torch.int64)
    return str((weights.shape, int(words.sum()))).encode()


def _lines(module: nn.Module, inputs: Inputs, changed: list[Keys]) -> dict[Keys, str]:
    """By a call under a tracer: the line of the user's after which each is another for once."""
    lines, last = dict[Keys, str](), "a call"
    before = {keys: _value(_at(module, keys)) for keys in changed}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal last
        for keys in changed:
            if keys not in lines and _value(_at(module, keys)) != before[keys]:
                lines[keys] = last
        their = frame.f_back if event == "return" else frame  # whose line goes on
        while their is not None and their.f_code.co_filename.startswith(NOT_THEIRS):
            their = their.f_back
        if their is not None:
            file, number = their.f_code.co_filename, their.f_lineno
            where = f"{'/'.join(Path(file).parts[-3:])}:{number}"
            last = f"{where} ({linecache.getline(file, number).strip()})"
        return trace if their is frame else None

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        list(_run(module, inputs))
    finally:
        sys.settrace(outer)
    trace(sys._getframe(), "end", None)
    return lines


def _at(thing: Any, keys: Keys) -> Any:
    for key in keys:
        thing = _parts(thing).get(key)
    return thing


def _named(keys: Keys) -> str:
    """`cell.hidden`, `history[0]`."""
    parts = (f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys if k not in _UNNAMED)
    return "".join(parts).lstrip(".")
