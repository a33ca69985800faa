"""A program prepared for the passes: golden cases from eager, then the export.

The program is either of a manifest's entry (`prepare`), or an ordinary PyTorch module with example
inputs and dynamic sizes (`Program`, `prepare_module`).
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import signal
import tempfile
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import (
    TreeSpec,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)

from menagerie import process
from menagerie.validation.findings import CaseKind
from menagerie.validation.refuting import Attempt, Kind, Plan
from transforms.export.python_state import refuse_python_state
from transforms.export.static_caches import with_caches_as_state
from transforms.export.trace import TRY_ALONE, dynamic_shapes, trace
from transforms.goldens.cases import (
    GoldenCase,
    check_shapes,
    exact_outputs,
    first_inputs,
    make_goldens,
)
from transforms.goldens.examples import example_goldens
from transforms.goldens.refuting import Answers, answers, excuses
from transforms.graph.call_signature import (
    CONSTANTS,
    Call,
    Eager,
    Signature,
    axes_by_input,
    know_caches,
    named_sizes,
    named_tensors,
    output_names,
    refuse_dropped_tokens,
    signature_of,
    state_of,
)
from transforms.graph.callable import WRAPPER_PREFIX, eager_of, without_fast_path
from transforms.graph.guards import plain_words
from transforms.graph.layouts import as_array, as_tensor
from transforms.graph.record import user_line
from transforms.passes.canonical import TakePlainInputs, run_canonical
from zoo.errors import ExportError, UsageError
from zoo.records import PassRecord
from zoo.sources.random_weights import misfit
from zoo.spec import ProgramSpec

if TYPE_CHECKING:
    from transforms.passes.quantisation import Range


T = TypeVar("T")
_MOST_CALLS = 64
_KNOWN = (
    "Give tensors, numbers, text, None, or lists, tuples and dictionaries of them; a module "
    "may keep a cache of fixed size in buffers"
)
_MOVE = "Move inputs and module to the CPU: .cpu(); load weights that are on meta"
_SHARED = (
    "Return what is kept and pass it in, or make both one program; where each is to keep its own, "
    "give one a copy.deepcopy of the module"
)


def in_fork(
    work: Callable[[], T], classes: Sequence[type], *, instead: Callable[[], T] | None = None
) -> Callable[[], T]:
    """Start `work` in a fork of this process; the returned function waits for its result.

    It is a process and not a thread, since torch.export changes `nn.Module` for all threads as it
    traces. The fork has only the calling thread, changes only its own memory, and is killed if the
    returned function is dropped. Objects in its result are of `classes`, besides tensors, numbers,
    text, lists and dictionaries. If `work` raises, or its process dies, `instead` runs in this
    process, or `work` again.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the result is read
    caller = os.getpid()
    process = os.fork()
    if process == 0:
        _write(work, file, caller)

    def result() -> T:
        with file:
            end.detach()
            if os.waitpid(process, 0)[1] != 0:
                return (instead or work)()
            file.seek(0)
            with torch.serialization.safe_globals(list(classes)):
                found: T = torch.load(file, weights_only=True)
            return found

    end = weakref.finalize(result, _end, process, file)  # nobody waits if a later step failed
    return result


def _end(process: int, file: IO[bytes]) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    file.close()


def _write(work: Callable[[], object], file: IO[bytes], caller: int) -> NoReturn:
    """Write the fork's result and exit without closing or flushing anything else.

    `multiprocessing` would close standard input, which a thread absent from the fork may hold.
    """
    code = 1
    try:
        # Otherwise it would keep the pipes open by which others see that its parent was killed.
        process.end_with(caller)
        torch.set_num_threads(1)  # a fork has no thread pool: a call would wait for it
        torch.save(work(), file)
        file.flush()
        code = 0
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Prepared:
    """An exported program, its signature, and its golden cases.

    Golden cases of a program with state are runs of `calls` calls; `eager` runs the original on
    inputs by name, and is the first call of a run.
    """

    name: str
    program: ExportedProgram
    signature: Signature
    goldens: list[GoldenCase]
    eager: Call
    calls: int = 1
    exact: dict[str, Tensor] = field(default_factory=dict)  # float64, by golden tensor
    operand_ranges: dict[str, Range] = field(default_factory=dict)  # if static, by parameter
    memory: dict[str, int] = field(default_factory=dict)  # storages of what it reads or writes
    passes: tuple[PassRecord, ...] = ()  # run by export
    refuting: Callable[[], Answers | None] = lambda: None  # waits for the fork's result

    def inputs_of(self, case: int) -> list[Tensor]:
        """Return the inputs of a golden case, or of an attempt, whose numbers follow the cases'."""
        if case < len(self.goldens):
            return list(self.goldens[case].inputs.values())
        plan, _ = self.refuting() or (Plan(golden=0, attempts=()), {})
        attempt, golden = plan.attempts[case - len(self.goldens)], self.goldens[plan.golden].inputs
        arrays = {name: as_array(value) for name, value in golden.items()}
        changed = {} if attempt.raises else attempt.inputs(arrays, self.signature.inputs)
        return [as_tensor(changed[name], value) for name, value in golden.items() if changed]


@without_fast_path()
def prepare(
    model: torch.nn.Module,
    spec: ProgramSpec,
    real: Mapping[str, Tensor] | None = None,
    *,
    forks: bool = False,
) -> Prepared:
    """Make the golden cases of one program, and export it with the inputs of the first.

    Float inputs take the dtype of the model's parameters; `real`, if the entry has samples, are the
    inputs of the last case. With `forks` the cases are made in a fork in parallel, see `in_fork`.
    Raise ExportError if eager fails on a case or the program cannot be exported.
    """
    place, eager, records = f"program {spec.name}", eager_of(model, spec), list[PassRecord]()
    example = tuple(first_inputs(model, spec, real).values())
    refuse_python_state(place, eager.module, (example, {}), WRAPPER_PREFIX)

    def goldens() -> tuple[list[GoldenCase], dict[str, Tensor]]:
        cases = make_goldens(model, spec, real=real)
        return cases, exact_outputs(eager, cases)

    if forks:
        made = in_fork(goldens, (GoldenCase, CaseKind))
    else:  # before the export, whose fake tensors stay in a module's attributes
        made = partial(lambda done: done, goldens())
    try:
        shapes = (dynamic_shapes(spec),)
        program = trace(place, eager.module, example, shapes=shapes, records=records)
    finally:
        cases, exact = made()  # an eager failure is clearer than the export's failure
    sizes = {i.name: i.shape for i in spec.inputs}
    ranges = {n: (d.low, d.high, d.multiple_of) for n, d in spec.dimensions.items()}
    signature = signature_of(program, sizes, output_names(program), ranges)
    check_shapes(place, signature, cases)
    if state_of(program):
        cases, exact = make_goldens(model, spec, calls=spec.calls), {}
    prepared = Prepared(spec.name, program, signature, cases, eager, spec.calls, exact)
    return _completed(prepared, eager, eager.module, records)


def _completed(
    prepared: Prepared,
    eager: Eager,
    module: torch.nn.Module | ExportedProgram,
    records: Sequence[PassRecord],
) -> Prepared:
    """Start computing eager's answers to attempts to refute the program; see `answers`.

    It runs in a fork during lowering, since eager may crash at wrong integers; another fork then
    leaves these out.
    """
    program, has_state = prepared.program, bool(state_of(prepared.program))
    reasons = excuses(program, [spec.name for spec in prepared.signature.outputs])
    make = partial(
        answers, eager, prepared.signature, prepared.goldens, has_state=has_state, excuses=reasons
    )
    classes = (Plan, Attempt, Kind)

    def fewer() -> Answers | None:
        return in_fork(partial(make, ends=False), classes, instead=lambda: None)()

    return replace(
        prepared,
        eager=eager.first if has_state else eager,
        calls=prepared.calls if has_state else 1,
        memory=_memory(module, program),
        passes=tuple(records),
        refuting=cache(in_fork(make, classes, instead=fewer)),
    )


@dataclass(frozen=True)
class Program:
    """One program of a bundle, with arguments that `transforms.convert` describes.

    A mapping of inputs counts as `kwargs`; an exported program has its own examples. Missing names
    default to forward's parameter names for inputs, and for outputs to the result's keys, or to
    `output` and the positions. If the module keeps state in buffers, each golden case consists of
    `calls` consecutive calls.
    """

    module: torch.nn.Module | ExportedProgram
    inputs: Sequence[Any] | Mapping[str, Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    calls: int = field(default=4, kw_only=True)
    calibration: Sequence[Sequence[Tensor]] = field(default=(), kw_only=True)


@without_fast_path()
def prepare_module(name: str, program: Program) -> Prepared:
    """Export a program and make its golden cases; see `example_goldens` for these.

    Raise UsageError if a bundle cannot have the inputs or names, and ExportError if torch.export or
    eager fails, or if the program needs what no target has.
    """
    place = f"program {name}"
    if not isinstance(program.calls, int) or not 1 <= program.calls <= _MOST_CALLS:
        fact = f"its golden cases cannot be {program.calls!r} calls"
        raise UsageError(place, fact, f"Give `calls` from 1 to {_MOST_CALLS}")
    know_caches()
    if isinstance(program.inputs, Mapping):
        program = replace(program, inputs=(), kwargs={**program.inputs, **program.kwargs})
    if isinstance(program.module, torch.nn.Module):
        stateful, rest = with_caches_as_state(place, program.module, program.inputs, program.kwargs)
        program = replace(program, module=stateful, kwargs=rest)
    arguments, keywords = _example(place, program)
    module, records = program.module, list[PassRecord]()
    if isinstance(module, ExportedProgram):
        module = run_canonical(place, module, [TakePlainInputs()], records)
        keywords = _as_exported(place, module.call_spec.in_spec, arguments, keywords)
    else:
        refuse_python_state(place, module, (arguments, keywords))
    leaves, spec = tree_flatten((arguments, keywords))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    sizes, wanted = _sizes(place, program, arguments, keywords)
    try:
        exported = trace(place, module, arguments, keywords, wanted, records=records)
    except ExportError as error:
        if error.next_step == TRY_ALONE:  # otherwise its advice is clearer than eager's
            _call_once(place, module, arguments, keywords)
        raise
    own = tuple(map(str, exported.graph_signature.user_inputs))
    inputs = _input_names(place, program, own, keywords)
    outputs = _names(place, program.names, "outputs", output_names(exported))
    shapes, dimensions = named_sizes(place, exported, dict(zip(own, sizes, strict=True)))
    renamed = dict(zip(inputs, shapes.values(), strict=True))
    signature = signature_of(exported, renamed, outputs, dimensions)
    example = dict(zip(inputs, tensors, strict=True))

    def called_with(given: Mapping[str, Tensor]) -> Any:
        """Return forward's arguments: the given tensors, and the constants of the example."""
        values = iter(given.values())
        each = (next(values) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        return tree_unflatten(each, spec)

    eager = Eager(
        module.module(check_guards=False) if isinstance(module, ExportedProgram) else module,
        called_with,
        lambda result: dict(zip(outputs, tree_leaves(named_tensors(result)), strict=True)),
    )
    calls = program.calls if state_of(exported) else 1
    goldens = example_goldens(place, signature, example, eager, calls)
    check_shapes(place, signature, goldens)
    exact = {} if state_of(exported) else exact_outputs(eager, goldens)
    made = Prepared(name, exported, signature, goldens, eager, program.calls, exact)
    return _completed(made, eager, module, records)


def _call_once(place: str, module: Any, arguments: Any, keywords: Any) -> None:
    """Raise ExportError if eager fails, which is clearer than the failure of torch.export."""
    module = module.module() if isinstance(module, ExportedProgram) else module
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    given = tree_map_only(Tensor, torch.clone, (arguments, keywords))
    try:
        torch.func.functional_call(module, buffers, *given)
    except Exception as error:
        why = plain_words(str(error)) or type(error).__name__
        where = user_line("".join(traceback.format_exception(error)))
        step = "Correct the inputs or"
        if lacking := re.match(r"Could not run '([\w:.]+)'", str(error)):
            why, step = (
                f"it has no kernel of {lacking[1]}",
                "Convert what comes before and after it in",
            )
        fact = f"eager PyTorch fails at the given inputs: {why}"
        raise ExportError(place, fact, f"{step} the module{where}") from error


def _memory(module: torch.nn.Module | ExportedProgram, program: ExportedProgram) -> dict[str, int]:
    """Return the storages that a program reads or writes, by name; for state, the module's."""
    held = {**program.state_dict, **program.constants, **dict(module.named_buffers())}
    signature, state = program.graph_signature, state_of(program)
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    nodes = program.graph.find_nodes(op="placeholder")
    read = {names[n.name] for n in nodes if n.name in names and n.users}
    dense = {n: held[n] for n in {*read, *state} if held[n].layout is torch.strided}
    return {n: tensor.untyped_storage()._cdata for n, tensor in dense.items()}


def refuse_shared_state(programs: Sequence[Prepared]) -> None:
    """Raise ExportError if a program writes a buffer that another has: they would diverge."""
    for one, other in itertools.permutations(programs, 2):
        for name in state_of(one.program):
            if one.memory.get(name) in other.memory.values():
                fact = f"writes buffer {name.removeprefix(WRAPPER_PREFIX)!r}, which program "
                fact += f"{other.name} has too, and a bundle's programs share no state"
                raise ExportError(f"program {one.name}", fact, _SHARED)


def _sizes(
    place: str, program: Program, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[list[Any], Any]:
    """Return `dynamic_shapes` for the tensors in order, and in torch.export's form."""
    shapes, module = program.dynamic_shapes, program.module
    leaves = tree_leaves((arguments, keywords))
    tensors = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    unknown = [None] * len(tensors)
    if not isinstance(shapes, (Mapping, list, tuple)):
        return unknown, shapes  # None, or a form that torch.export accepts or refuses
    if not any(shapes.values() if isinstance(shapes, Mapping) else shapes):
        return unknown, None
    if isinstance(module, ExportedProgram):  # sizes are already dynamic or fixed
        own = {n.name: n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"}
        slots = [n for n in module.graph_signature.user_inputs if own.get(n) is not None]
        called = {name: own[name] for name in map(str, slots)}
        found = axes_by_input(place, dict(zip(called, called, strict=True)), called, shapes)
        for (name, value), axes in zip(called.items(), found, strict=True):
            _check_exported(place, name, value, axes)
        return found, shapes
    named = dict(zip(keywords, keywords, strict=True))
    bound = inspect.signature(module.forward).bind(*range(len(arguments)), **named)
    values: dict[Any, Any] = {**dict(enumerate(arguments)), **keywords}
    found = axes_by_input(place, bound.arguments, values, shapes)
    wanted: Any = torch.export.ShapesCollection()  # type: ignore[no-untyped-call]
    for number in tensors:
        wanted[leaves[number]] = found[number]
    return [found[n] for n in tensors], wanted.dynamic_shapes(module, arguments, keywords)


def _check_exported(place: str, name: str, value: Any, axes: Any) -> None:
    """Raise UsageError for requested dynamic sizes that an exported program has fixed."""
    for axis, size in axes.items() if isinstance(axes, Mapping) else enumerate(axes or ()):
        dynamic = size is not None and size is not Dim.STATIC and not isinstance(size, int)
        if dynamic and isinstance(value.shape[axis], int):
            fact = f"was exported with axis {axis} of {name} fixed at {value.shape[axis]}"
            raise UsageError(place, fact, "Give dynamic_shapes= to torch.export.export")


def _as_exported(
    place: str, spec: TreeSpec, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Order keywords as the program was exported; UsageError if its arguments differ."""
    slots, named = spec.children()
    ordered = {name: keywords[name] for name in named.context if name in keywords}
    if len(ordered) < len(keywords) or tree_structure((arguments, ordered)) != spec:
        wanted = f"{slots.num_children} by position" + "".join(f", {n}=" for n in named.context)
        raise UsageError(place, f"was exported with {wanted}", "Give its inputs in the same way")
    return ordered


def _example(place: str, program: Program) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for a call, with tensors laid out as given; refuse unsupported ones."""
    arguments: Any = program.inputs
    keywords: dict[str, Any] = dict(program.kwargs)
    if not arguments and not keywords and isinstance(program.module, ExportedProgram):
        arguments, keywords = program.module.example_inputs or ((), {})
    given = tuple(arguments), dict(keywords)
    leaves, _ = tree_flatten_with_path(given)
    module = program.module
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu":
            raise UsageError(place, f"{name} is on {tensor.device}", _MOVE)
    for (_, key, *rest), leaf in leaves:
        what = getattr(key, "key", f"input {getattr(key, 'idx', '')}") + keystr(tuple(rest))
        if not isinstance(leaf, (Tensor, *CONSTANTS)):
            raise UsageError(place, f"{what} is a {type(leaf).__name__}, not a tensor", _KNOWN)
        if isinstance(leaf, Tensor) and leaf.device.type != "cpu":
            fact = f"{what} is on {leaf.device}"
            raise UsageError(place, fact, _MOVE)
    if not any(isinstance(leaf, Tensor) for _, leaf in leaves):
        raise UsageError(place, "there are no inputs to call it with", "Give example tensors")
    called = getattr(program.module, "forward", None)  # an ExportedProgram checks its own arguments
    if called and (fault := misfit(called, keywords, len(given[0]))):
        raise UsageError(place, f"cannot be called so: {fault}", "Correct inputs= or kwargs=")
    # One object for each, so that a tensor given twice can have sizes for each use.
    alone: tuple[tuple[Any, ...], dict[str, Any]] = tree_map_only(Tensor, Tensor.detach, given)
    refuse_dropped_tokens(place, given, alone)
    return alone


def _input_names(
    place: str, program: Program, own: Sequence[str], keywords: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the inputs' names: those given by keyword keep their keyword, wherever it is listed.

    Raise UsageError if a name could mean one keyword or another.
    """
    if alike := [name for name in keywords if name.lower() != name and name.lower() in keywords]:
        fact = f"the keywords {alike[0]} and {alike[0].lower()} differ in case alone"
        raise UsageError(place, fact, "Rename one: torch.export writes names in lower case")
    names = _names(place, program.names, "inputs", own)
    count = len([t for t in tree_leaves(dict(keywords)) if isinstance(t, Tensor)])
    first, named = names[: len(own) - count], own[len(own) - count :]
    if {*names[len(first) :]} == {*named}:
        return *first, *named
    called = list(keywords)
    if isinstance(program.module, torch.nn.Module):
        called = [n for n in inspect.signature(program.module.forward).parameters if n in keywords]
    moved = any(name in named and name != mine for name, mine in zip(names, own, strict=True))
    if moved or (names != own and called != [name for name in keywords if name in called]):
        fact = f"the names {', '.join(names)} could be meant for its inputs in another order"
        raise UsageError(place, fact, f"Give kwargs in forward's order, or keep {', '.join(own)}")
    return names


def _names(
    place: str, wanted: Mapping[str, Sequence[str]], kind: str, own: Sequence[str]
) -> tuple[str, ...]:
    """Return the user's names, which must be complete and unique, or else the program's."""
    if strange := sorted(set(wanted) - {"inputs", "outputs"}):
        raise UsageError(place, f"names has {strange[0]!r}", 'It holds "inputs" and "outputs"')
    names = tuple(wanted.get(kind) or own)
    if strange := [n for n in names if not n or str(n).encode(errors="replace").decode() != n]:
        raise UsageError(place, f"one of the {kind} is called {strange[0]!r}", "Give it a text")
    if len(names) != len(own) or len(set(names)) != len(names):
        fact = f"has {len(own)} {kind} ({', '.join(own)}), but the names are {', '.join(names)}"
        raise UsageError(place, fact, "Name each of them, once")
    return names
