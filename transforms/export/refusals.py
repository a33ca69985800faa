"""What no target can run, refused by name right after the export; and sizes that must be tried.

Refusals come all at once. Where the code of a model asks something of a dynamic size, torch.export
looks for a proof that the answer is the same for the whole range, by algebra alone; it gives up on
minima, divisions and remainders, such as those of a cache that is repeated for grouped queries. It
can leave the question in the graph instead, as an assertion. A range has ends, so all its sizes can
be tried, in one computation of tensors of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._guards import detect_fake_mode
from torch.export.graph_signature import OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import TensorReferenceAnalysis

from transforms.export.call_signature import DTYPES
from transforms.graph.editor import ProgramEditor
from transforms.graph.record import origin
from transforms.graph.schemas import is_random, producers, schema_of, tensors_of
from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node


_MOST_TRIED = 10_000_000  # combinations of sizes: seconds for each assertion
_LARGEST_STEP = 64  # of the sizes that are looked for where not every size will do
_ASSERTIONS = (torch.ops.aten._assert_scalar.default,)


def without_assertions(place: str, program: ExportedProgram) -> ExportedProgram:
    """The program without what it asserts of its sizes, once that holds for all of them.

    Args:
        place: named in errors.
        program: exported with `prefer_deferred_runtime_asserts_over_guards`.

    Raises:
        ExportError: an assertion does not hold for some size, or there are too many to try.
    """
    editor = ProgramEditor(program)
    ranges = {
        symbol: range(int(bounds.lower), int(bounds.upper) + 1)
        for symbol, bounds in program.range_constraints.items()
        if symbol.is_Symbol
    }
    axes = _axes(editor)
    mode: Any = detect_fake_mode([node.meta.get("val") for node in editor.graph.nodes])
    # Not every one is in the graph: none of floats, and those not that another seems to imply.
    for asserted in mode.shape_env.deferred_runtime_asserts.get(None, ()):
        _settle(place, mode.shape_env.replace(asserted.expr), ranges, axes)
    for node in editor.calls(*_ASSERTIONS):
        condition: Any = node.args[0]
        value = condition.meta["val"] if isinstance(condition, torch.fx.Node) else condition
        if isinstance(value, torch.SymBool):  # else torch knew the answer
            _settle(place, value.node.shape_env.replace(value.node.expr), ranges, axes)
        editor.graph.erase_node(node)
    return editor.finish()


_Axes = dict[Any, tuple[str, int]]  # of which input each size's symbol is which axis


def _axes(editor: ProgramEditor) -> _Axes:
    found: _Axes = {}
    for node in editor.graph.nodes:
        value: Any = node.meta.get("val") if node.op == "placeholder" else None
        for axis, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node.expr, (node.name, axis))
    return found


def _in_words(expression: Any, axes: _Axes) -> str:
    """An expression of sizes with `x.shape[1]` for the symbol of axis 1 of x."""
    named = {s: "{}.shape[{}]".format(*axes[s]) for s in expression.free_symbols if s in axes}
    return str(expression.xreplace({s: sympy.Symbol(n, integer=True) for s, n in named.items()}))


def _settle(place: str, expression: Any, ranges: Mapping[Any, range], axes: _Axes) -> None:
    """Try an assertion with every size; an ExportError says where it does not hold."""
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in ranges for symbol in symbols):
        fact = f"what is computed decides a size: {expression}"
        raise ExportError(place, fact, "Let sizes follow from the inputs' shapes alone")
    named = {s: "axis {1} of {0}".format(*axes[s]) if s in axes else str(s) for s in symbols}
    advice = f"Narrow the range of {' or '.join(named.values())}"
    if math.prod(len(ranges[symbol]) for symbol in symbols) > _MOST_TRIED:
        asked = _in_words(expression, axes)
        fact = f"whether {asked} holds for all sizes is unknown, and they are too many to try"
        raise ExportError(place, fact, advice)
    sizes = [ranges[symbol] for symbol in symbols]
    held = _held(expression, dict(zip(symbols, sizes, strict=True)))
    for places in (~held).nonzero()[:1].tolist():
        found = zip(named.values(), sizes, places, strict=True)
        known = ", ".join(f"{name} = {each[place]}" for name, each, place in found)
        fact = f"is another program at {known}: {_in_words(expression, axes)} does not hold there"
        axis_by_axis = enumerate(zip(named.values(), sizes, strict=True))
        fitting = [n + _where_it_holds(held.movedim(i, 0), each) for i, (n, each) in axis_by_axis]
        step = f"Narrow the range of {' or '.join(fitting)}{_together(held, sizes)}"
        raise ExportError(place, fact, step)


def _together(held: torch.Tensor, sizes: Sequence[range]) -> str:
    """What to do where it holds of sizes that are all the same."""
    common = set.intersection(*map(set, sizes)) if len(sizes) > 1 else set()
    same = common and all(held[tuple(map(range.index, sizes, [n] * len(sizes)))] for n in common)
    return ", or give all one Dim: it holds where they are equal" if same else ""


def _where_it_holds(held: torch.Tensor, sizes: range) -> str:
    """Which of the first axis' sizes would do with all others, for torch.export; empty if none."""
    fits = held.reshape(len(sizes), -1).all(1)
    fit = [size for size, each in zip(sizes, fits, strict=True) if each]
    if len(fit) > 1 and fit == list(range(fit[0], fit[-1] + 1)):
        return f": it holds from {fit[0]} to {fit[-1]}"
    for step in range(2, min(_LARGEST_STEP, sizes[-1] // 2) + 1):
        low, high = max(2, -(-sizes[0] // step)), sizes[-1] // step  # torch takes no least Dim of 1
        if low < high and set(range(low * step, sizes[-1] + 1, step)) <= set(fit):
            return f": it holds of multiples of {step}, {step} * Dim(..., min={low}, max={high})"
    return ""


class _AllAtOnce(TensorReferenceAnalysis):
    """Arithmetic of positive sizes, as tensors of them."""

    mod: Any = staticmethod(torch.remainder)
    python_mod = mod
    int_truediv: Any = staticmethod(lambda a, b: a.double() / b)


def _held(expression: Any, ranges: Mapping[Any, range]) -> torch.Tensor:
    """Of which sizes it holds, an axis for each symbol."""
    sizes = [torch.arange(each.start, each.stop) for each in ranges.values()]
    grid = torch.meshgrid(sizes, indexing="ij") if sizes else ()
    found = sympy_interp(_AllAtOnce, dict(zip(ranges, grid, strict=True)), expression)
    held: torch.Tensor = found.expand([len(each) for each in sizes])
    return held


_OF_STATE = {
    OutputKind.PARAMETER_MUTATION: "parameter",
    OutputKind.USER_INPUT_MUTATION: "input",
}
_ADVICE = {
    "parameter": "Write into a copy, or call .eval() on the module first",
    "input": "Write into a copy (.clone()) and return it",
}
_NO_STATE = "only buffers keep state between calls"
_TRAINING = "by a module in training mode. Call .eval() first: what a call writes then is kept"
_NO_NOISE = "Pass the noise as an input; for dropout, call .eval() on the module first"
_NO_NUMBER = "Compute with the tensor, or make a constant a Python number in __init__"
_NO_DATA = "Pad to a fixed size, or return a mask instead of what it selects"


def refuse_unsupported(
    place: str, program: ExportedProgram, module: torch.nn.Module | None = None
) -> None:
    """Raise ExportError if a program, in inference form, needs what no target has.

    Named with module path and source line: parameters and inputs that are written, and buffers by
    modules in training mode; random numbers; sizes and values read from tensors; dtypes that
    artifacts do not know; inputs and results that are no tensors.

    Args:
        place: the program, in the message.
        program: as it was exported; nothing has been rewritten yet.
        module: what it was exported from; None where it is unknown.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    used = _used(program)
    faults = [
        *_no_tensors(program, nodes),
        *_written(program, nodes),
        *_written_in_training(program, nodes, module),
        *_random(used),
        *_shaped_by_data(used),
    ]
    if faults:
        raise ExportError(place, "cannot be converted" + "".join(f"\n  {f}" for f in faults))


def _used(program: ExportedProgram) -> list[Node]:
    """The nodes that what is returned or written depends on, in graph order."""
    found = producers(program.graph.output_node())
    return [n for n in program.graph.nodes if n in found]


def _no_tensors(program: ExportedProgram, nodes: dict[str, Node]) -> Iterator[str]:
    signature = program.graph_signature
    for kind, names in (("input", signature.user_inputs), ("output", signature.user_outputs)):
        if kind == "output" and not names:
            yield "it returns nothing. Return at least one tensor"
        for position, name in enumerate(names):
            node = nodes.get(name) if isinstance(name, str) else None
            yield from _no_tensor(f"{kind} {position}", name, node)


def _no_tensor(what: str, name: Any, node: Node | None) -> Iterator[str]:
    if node is None:
        yield f"{what} is {name!r}, not a tensor. Leave it out"
        return
    value = node.meta.get("val")
    where = origin(node) if node.op == "call_function" else node.name
    if not isinstance(value, torch.Tensor):
        yield f"{what} is a {type(value).__name__}, not a tensor: {where}. Leave it out"
    elif value.dtype not in DTYPES:
        step = ", e.g. torch.view_as_real(x)" if value.dtype.is_complex else ""
        fact = f"{what} is of {value.dtype}, which artifacts do not know"
        yield f"{fact}: {where}. Convert it{step}"
    elif value.layout is not torch.strided:
        yield f"{what} is {value.layout}: {where}. Use dense tensors"


def _written(program: ExportedProgram, nodes: dict[str, Node]) -> Iterator[str]:
    """What is written and cannot be kept."""
    for spec in program.graph_signature.output_specs:
        what = _OF_STATE.get(spec.kind)
        if what is not None:
            site = origin(nodes[spec.arg.name])
            yield f"{what} {spec.target!r} is written by {site}: {_NO_STATE}. {_ADVICE[what]}"


def _written_in_training(
    program: ExportedProgram, nodes: dict[str, Node], module: torch.nn.Module | None
) -> Iterator[str]:
    """Statistics that are not state, as batch normalisation gathers them."""
    if module is None:
        return
    for node, name in program.graph_signature.buffers_to_mutate.items():
        if module.get_submodule(name.rpartition(".")[0]).training:
            yield f"buffer {name!r} is written by {origin(nodes[node])}, {_TRAINING}"


def _random(used: Iterable[Node]) -> Iterator[str]:
    for node in used:
        tags = getattr(node.target, "tags", ())
        drawn = torch.Tag.nondeterministic_seeded in tags and schema_of(node.target) is not None
        if node.op == "call_function" and drawn and is_random(node):
            yield f"random numbers are drawn by {origin(node)}. {_NO_NOISE}"


def _shaped_by_data(used: Iterable[Node]) -> Iterator[str]:
    for node in used:
        if not node.meta.get("unbacked_bindings"):
            continue
        if any(free_unbacked_symbols(tensor) for tensor in tensors_of(node)):
            yield f"a size depends on values of a tensor at {origin(node)}. {_NO_DATA}"
        else:
            yield f"a number is read out of a tensor at {origin(node)}. {_NO_NUMBER}"
