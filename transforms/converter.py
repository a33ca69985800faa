"""Conversion of a module to a proven bundle in one call: export, passes, lowering, proof."""

from __future__ import annotations

import errno
import functools
import gc
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import torch
from pydantic import ValidationError as PydanticError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.export import ExportedProgram
from torch.fx import Node

from menagerie.durable import disk_errors
from menagerie.figures import decibels
from menagerie.format.archive import require_free_place
from menagerie.format.bundle_manifest import BundleManifest
from menagerie.format.folder import open_bundle
from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.validation import Limits
from menagerie.validation.findings import ValidationReport, Verdict
from transforms.bisect import diagnose
from transforms.eager import Gate, accuracy_gate, called_with_arrays
from transforms.export.prepare import Prepared, Program, prepare_module
from transforms.graph.call_signature import DTYPES
from transforms.graph.editor import fake_value
from transforms.graph.interpret import output_nodes
from transforms.graph.layouts import content_digest, plain
from transforms.graph.record import kind_of
from transforms.graph.schemas import tensors_of
from transforms.passes.quantisation import INTEGERS
from transforms.stages import Stage, export, located, lower, prove, seal, transform
from transforms.targets import Identity, PassItem, Settings, Target, target_named
from zoo.arguments import check_kinds, check_time
from zoo.build_key import code_digest
from zoo.errors import SourceError, UnsupportedKernels, UsageError, ValidationError
from zoo.precision import Precision, WeightPrecision
from zoo.progress import progress_to
from zoo.records import (
    ConversionReport,
    Diagnosis,
    NodeKind,
    PassLog,
    StageTime,
    dearest,
    suspected,
)
from zoo.report.summary import cause
from zoo.signing.promotion import sign_own
from zoo.spec import AccuracyGate, Group, usual_tolerances

_NAME = re.compile(r"[a-z][a-z0-9_]{,99}")
_NAMES = "Use lower-case letters, digits and `_`, a letter first, at most 100"
_PLACE = "convert"
_SEARCH = (
    "Call convert with search_seconds=600 (`zoo compile --search-minutes 10`) to find the first "
    "node that is wrong"
)
_ALLOW = ", or allow more with tolerances="
_NEXT_STEPS = {
    Verdict.CRASHED: "No artifact may end its process: open an issue with the module and inputs",
    Verdict.TIMED_OUT: "Give smaller example inputs, or narrower ranges of dynamic sizes",
}
_KEEP = "Leave it as it is with keep= (precisions of integers), or allow more with tolerances="
# Parts of operators' names, besides layout operators', that leave elements unchanged.
_EXACT = ("embedding", "index", "gather", "copy", "flip", "where", "full")

# Modules that torch.export does not support, by the module of their class.
_SCRIPTED = "is TorchScript. Give the torch.nn.Module that it was made from"
_UNREAD = {
    "torch.jit._script": _SCRIPTED,
    "torch.nn.parallel": "calls copies of a module. Give that: its `.module`",
    **dict.fromkeys(
        ("torch.ao.nn.quantized.dynamic", "torch.ao.nn.quantized.modules.linear",
         "torch.ao.nn.quantized.modules.conv", "torch.ao.nn.intrinsic.quantized"),
        "keeps weights as torch's own kernels do. Convert the float module, "
        'with precision="int8"',
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ConvertedBundle:
    """A proven bundle."""

    folder: Path
    manifest: BundleManifest
    # `worst_snr_db` and `worst_abs` give its distance from eager, `validation` everything.
    report: ConversionReport

    def __repr__(self) -> str:
        """Show its folder, its distance from eager, and its sizes, as in a notebook."""
        worst = self.report.worst_snr_db
        near = [] if worst is None else [decibels(worst)]
        facts = [repr(str(self.folder)), self.manifest.target, *near, *self.sizes]
        return f"ConvertedBundle({', '.join(facts)})"

    @property
    def sizes(self) -> tuple[str, ...]:
        """The dynamic sizes that were proven, such as `n from 4 to 64 by 2`."""
        found = (d for p in self.manifest.programs for d in p.dimensions.items())
        spans = (f"{n} from {a} to {b}" + f" by {by}" * (by > 1) for n, (a, b, by) in found)
        return tuple(dict.fromkeys(spans))


def convert(
    module: torch.nn.Module | ExportedProgram | Mapping[str, Program | tuple[Any, ...]],
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    target: str | Target = "cpu",
    out: Path | str,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    names: Mapping[str, Sequence[str]] | None = None,
    calls: int = 4,
    calibration: Sequence[Sequence[torch.Tensor]] = (),
    passes: Sequence[PassItem] | None = None,
    tolerances: Mapping[Dtype | str, Tolerance | float] | None = None,
    accuracy: Mapping[str, Any] | None = None,
    precision: Precision | str = Precision.FLOAT32,
    keep: Sequence[str] = (),
    group: int | None = None,
    model: str = "",
    licence: str = "",
    threads: int = 1,
    measure_seconds: float = 1.0,
    search_seconds: float = 0.0,
    progress: Callable[[str], None] | None = None,
) -> ConvertedBundle:
    """Convert a module and prove that the result computes what eager PyTorch does.

    The proof runs in a fresh process without torch: on `inputs`, and, if sizes are dynamic, on
    inputs of the lowest, highest and odd sizes (see `transforms.goldens.examples`); then on inputs
    that try to refute it, such as zeros, NaN, ends of the dtype and wrong indices
    (`menagerie.validation.refuting`). `out` appears only when all of it has passed, signed with
    this user's own keys, which are made on first use: it opens on this machine, and elsewhere once
    the keys are trusted.

    Args:
        module: in eval mode, or already exported; or a mapping from names to `Program`s, or to
            tuples of their arguments (module, inputs): several programs of one bundle, whose equal
            weights are stored once.
        inputs: a tuple of examples, or examples by name: tensors on the CPU with any strides, or
            lists, tuples, dictionaries and caches of them, whose tensors become inputs by path
            (`images_0`, `batch_mask`). Numbers, booleans, text and None among them are constants
            of the export. An ExportedProgram has its own.
        target: the name of a target, or a Target.
        out: the folder to create; missing or empty.
        kwargs: further examples by name, as in torch.export.
        dynamic_shapes: as in torch.export, or one for each input in order; every range needs a
            largest size, and begins at 1 if `min` is 0, torch's default: a size of 0 is refused.
        names: `{"inputs": [...], "outputs": [...]}`, either may be left out. Keywords keep their
            own names; other names are in forward's order.
        calls: for a module that keeps state in buffers: the number of consecutive calls that prove
            it. The artifact begins with the buffers as they are now; `Session.reset` restores
            them.
        calibration: for the precision `int8-static`: samples of realistic inputs, each with all
            inputs of a call in the graph's order, positional before named ones.
        passes: graph passes in order, names or choices with options; None for the target's.
        tolerances: by dtype of an output; a number is the largest absolute error. By default each
            dtype has its own, or, if all its outputs are cast from narrower floats, those floats'.
        accuracy: a gate on labelled data, with the fields of `zoo.spec.AccuracyGate`: `data`, a
            safetensors file or tensors by name, with the inputs and `labels`; `metric`; and the
            largest loss against float32, `max_degradation` (a share of the samples) or
            `percent_max_degradation` (of float32's accuracy), which judges a low precision instead
            of tolerances. Without a loss the artifact must be as accurate as eager.
        precision: the type in which float32 weights are stored, and to which they are rounded; it
            also sets the default tolerance of float32 outputs.
        keep: parameters, or layers, whose weights are not rounded to integers.
        group: with a weight-only precision: how many integers of a row share a scale, 32, 64, 128
            or 256; by default 128 for eight bits, 32 for four.
        model: the model's name in the bundle; by default the module's class.
        licence: the weights' licence, an SPDX identifier.
        threads: the number of threads for timing the artifact and eager.
        measure_seconds: the longest time to time each program, in turns with eager; 0: no timing.
        search_seconds: how long to search for the wrong node if the proof fails.
        progress: called with each finished step, e.g. `lower: program main: 31 kernels generated`.

    Raises:
        UsageError: the call itself is wrong.
        ExportError: torch.export or eager fails, or the program needs what no target has, listed
            with module and line; or it keeps state outside buffers.
        LoweringError: the target lacks kernels (UnsupportedKernels lists all), or its compiler
            failed.
        ValidationError: the artifact differs from eager: which output, by how much, what to do.
    """
    check_kinds(_PLACE, locals())
    require_free_place(Path(out))
    folder = Path(out).absolute()
    alone: Any = None if isinstance(module, Mapping) else module
    given = (inputs, kwargs or {}, dynamic_shapes, names or {})
    single = Program(alone, *given, calls=calls, calibration=calibration or ())
    programs = _programs(module, single)
    check_time(_PLACE, threads, measure_seconds=measure_seconds, search_seconds=search_seconds)
    kept = _kept(precision, keep, group)
    _check_calibration(programs, kept.precision)
    labelled = _labelled(accuracy, programs, kept.precision)
    judges = labelled is not None and labelled.judges
    settings = Settings(
        target=target_named(target),
        passes=passes,
        kept=kept,
        tolerances=_tolerances(tolerances, kept.precision, accuracy_judges=judges),
        threads=threads,
        seconds=measure_seconds,
    )
    request = _Request(_model_name(model, programs), licence, settings, search_seconds, labelled)
    with disk_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.")
    with _full_disks_named(folder.parent), place as temporary:
        reproducer = folder.with_name(f"{folder.name}-divergence")
        times: list[StageTime] = []
        stages = list(Stage)[1:]  # all but the pull
        tell = progress or (lambda _: None)
        told = progress_to(lambda step: tell(f"{stages[len(times)]}: {step.text}"))
        with told, _what_is_loaded_kept():
            made = _convert(Path(temporary) / "bundle", reproducer, request, programs, times)
        try:
            made.folder.replace(folder)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            fact = "something else was put there meanwhile, perhaps by another conversion"
            raise UsageError(str(folder), fact, "Choose another folder") from None
    return replace(made, folder=folder)


@contextmanager
def _what_is_loaded_kept() -> Iterator[None]:
    """Keep garbage collections from scanning everything loaded before, at 0.2 s each."""
    ours = gc.get_freeze_count() == 0
    gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


@contextmanager
def _full_disks_named(folder: Path) -> Iterator[None]:
    """Name the file on a full disk if the system names it, else the bundle's folder."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        said = re.search(r"os error (\d+)", str(error))  # as safetensors, which is Rust, writes it
        number = error.errno if isinstance(error, OSError) else int(said[1]) if said else None
        if number not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        # For a copy, the second name is the file being written.
        named = getattr(error, "filename2", None) or getattr(error, "filename", None)
        with disk_errors(Path(named).parent if named else folder):
            raise OSError(number, os.strerror(number)) from error


@dataclass(frozen=True)
class _Request:
    name: str
    licence: str
    settings: Settings
    search_seconds: float
    labelled: _LabelledData | None = None


@dataclass(frozen=True)
class _LabelledData:
    """An accuracy gate, its data, and whether it judges instead of tolerances."""

    gate: AccuracyGate
    data: Path | Mapping[str, torch.Tensor]
    judges: bool

    def measure(self, programs: Sequence[Prepared], folder: Path) -> Gate:
        """Measure eager's accuracy; write tensors to the folder, which exists."""
        path, gate = self.data, self.gate
        if isinstance(path, Mapping):
            tensors = {name: plain(tensor) for name, tensor in path.items()}
            save_file(tensors, path := folder / "accuracy.safetensors")
        program = next(p for p in programs if p.name == gate.program)
        if program.calls > 1:
            fact = f"program {program.name} keeps state from call to call"
            raise UsageError("accuracy", fact, "Leave `accuracy` out, or write a manifest")
        if "batch" not in gate.model_fields_set:
            axis = program.signature.inputs[0].shape[0]
            most = axis if isinstance(axis, int) else program.signature.dimensions[axis][1]
            batch = min(most, gate.batch) if axis != most else most
            gate = gate.model_copy(update={"batch": batch})
        called = called_with_arrays(program.eager, program.signature)
        try:
            return accuracy_gate(called, gate, path, judges=self.judges)
        except SourceError as error:  # the user knows no file of tensors
            place = "accuracy" if path is not self.data else error.place
            raise SourceError(place, error.fact, error.next_step) from error


def _convert(
    bundle: Path,
    reproducer: Path,
    request: _Request,
    programs: Mapping[str, Program],
    stages: list[StageTime],
) -> ConvertedBundle:
    began = time.perf_counter()

    def ended(stage: Stage) -> Sequence[StageTime]:
        """Return all stages with their times; the last one ends now."""
        seconds = time.perf_counter() - began - sum(each.seconds for each in stages)
        stages.append(StageTime(stage=stage, seconds=seconds))
        return stages

    settings = request.settings
    originals = export(programs.items(), lambda item: prepare_module(*item))
    ended(Stage.EXPORT)
    samples = {name: program.calibration for name, program in programs.items()}
    after, transformed = transform(originals, settings, calibration=samples)
    settings = replace(settings, tolerances=_as_computed(after) | dict(settings.tolerances))
    ended(Stage.TRANSFORM)
    identity = Identity(
        request.name,
        settings.target,
        _key(request.name, settings, after),
        licence=request.licence,
        parameters=sum(t.numel() for p in after for t in p.program.parameters()),
    )
    labelled = request.labelled
    gate = None if labelled is None else labelled.measure(originals, bundle.parent)
    try:
        lowered = lower(bundle, identity, after, settings, gate=gate)
    except UnsupportedKernels as lacking:
        raise _with_reasons(lacking, transformed.passes) from None
    ended(Stage.LOWER)
    limits = Limits(threads=settings.threads, measure_seconds=settings.seconds)
    times = functools.partial(ended, Stage.VALIDATE)
    draft = open_bundle(bundle, check_hashes=False).manifest
    report = prove(bundle, draft, identity, transformed, lowered, limits=limits, stages=times)
    if not report.validation.passed:
        if request.search_seconds:
            named = {program.name: program for program in originals}
            suspects = suspected(report.validation, [*named])
            search = functools.partial(diagnose, named, suspects, settings, folder=reproducer)
            report = located(report, lambda: search(seconds=request.search_seconds))
        raise _failed_proof(report.validation, report.diagnosis, dearest(report))
    manifest = seal(bundle, draft, report, transformed.graphs)
    sign_own(bundle)
    return ConvertedBundle(bundle, manifest, report)


def _with_reasons(lacking: UnsupportedKernels, logs: Sequence[PassLog]) -> UnsupportedKernels:
    """Return the error with the reason why complex numbers are left, if there are any."""
    records = (r for log in logs for r in log.records if r.name == "decompose_stft")
    reason = next((each.reason for record in records for each in record.refusals), "")
    step = f"The program has complex numbers that could not be made real: {reason}"
    return UnsupportedKernels(lacking.place, lacking.uses, step) if reason else lacking


def _failed_proof(
    validation: ValidationReport, search: Diagnosis | None, rounding: str = ""
) -> ValidationError:
    """Return an error with the difference and advice; `rounding` names the costliest layer."""
    wrong = next(
        ((p.program, o) for p in validation.programs for o in p.parity if not o.passed), None
    )
    fact = f"{validation.verdict}: {validation.detail}"
    if wrong is not None:
        fact = f"output {wrong[1].output!r} of golden case {wrong[1].case}: {wrong[1].fact}"
    place = f"program {wrong[0]}" if wrong is not None else "validation"
    if search is None and wrong is None:
        refuted = any(program.wrong_cases for program in validation.programs)
        step = _SEARCH if refuted else _NEXT_STEPS.get(validation.verdict, "")
        return ValidationError(place, fact, step)
    if search is None:
        finite = wrong is not None and wrong[1].nonfinite_match
        step = f"{rounding}. {_KEEP}" if rounding else _SEARCH + (_ALLOW if finite else "")
        return ValidationError(place, fact, step)
    command = search.divergence.command if search.divergence is not None else ""
    again = f". Run it alone: {command}" if command else ""
    return ValidationError(place, fact, cause(search) + again)


def _key(name: str, settings: Settings, programs: Sequence[Prepared]) -> str:
    """Hash the programs to be lowered, their weights, the target and our code."""
    target = settings.target
    facts = name, target.name, target.platform, str(settings.kept)
    digest = hashlib.sha256(" ".join(facts).encode())
    digest.update(code_digest().encode())
    digest.update(str(sorted(target.versions().items())).encode())
    digest.update(torch.__version__.encode())
    for each in programs:
        digest.update(str(sorted(each.operand_ranges.items())).encode())
        digest.update(f"{each.name} {each.signature} {each.program.graph}".encode())
        for key, value in sorted({**each.program.state_dict, **each.program.constants}.items()):
            if isinstance(value, torch.Tensor):
                digest.update(key.encode() + content_digest(value))
    return digest.hexdigest()


def _programs(module: Any, single: Program) -> dict[str, Program]:
    """Return the bundle's valid programs by name; a single one is called `main`."""
    if not isinstance(module, Mapping):
        return {"main": _checked("program main", single)}
    beside = single.inputs, single.kwargs, single.dynamic_shapes, single.names, single.calibration
    if any(beside):
        fact = "several programs were given, and separate inputs or names too"
        raise UsageError(_PLACE, fact, "Give them with each: {'main': Program(module, (x,))}")
    if not module:
        raise UsageError(_PLACE, "there is no program to convert", "Name at least one")
    for name in module:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(_PLACE, f"a program cannot be called {name!r}", _NAMES)
    return {name: _checked(f"program {name}", program) for name, program in module.items()}


def _checked(place: str, program: Program | tuple[Any, ...]) -> Program:
    """Return the program, built from a tuple if it is one; raise UsageError for anything else."""
    most = sum(not field.kw_only for field in fields(Program))
    if isinstance(program, tuple) and 0 < len(program) <= most:
        program = Program(*program)
    if not isinstance(program, Program):
        kind = type(program).__name__
        fact = f"is a {kind} of {len(program)}" if isinstance(program, tuple) else f"is a {kind}"
        raise UsageError(place, fact, "Give a Program(module, inputs), or a tuple of that")
    check_kinds(place, vars(program))
    module: object = program.module
    if not isinstance(module, (torch.nn.Module, ExportedProgram)):
        kind = type(module).__name__
        raise UsageError(place, f"is a {kind}", "Give a torch.nn.Module or an ExportedProgram")
    if isinstance(module, torch.jit.ScriptModule):  # a traced part inside another is supported
        raise UsageError(place, *_SCRIPTED.split(". "))
    for name, part in module.named_modules() if isinstance(module, torch.nn.Module) else ():
        if found := [s for m, s in _UNREAD.items() if type(part).__module__.startswith(m)]:
            raise UsageError(f"{place}, {name}".removesuffix(", "), *found[0].split(". "))
    return program


def _kept(wanted: Precision | str, keep: Sequence[str], group: int | None) -> WeightPrecision:
    """Return how weights are stored, if a precision of that name has such groups."""
    try:
        precision = Precision(wanted)
    except ValueError:
        known = ", ".join(Precision)
        raise UsageError(_PLACE, f"there is no precision {wanted!r}", f"Known: {known}") from None
    if group is not None and (not precision.has_groups or group not in get_args(Group)):
        fact = f"{precision} has no groups of {group!r}"
        step = f"Weight-only precisions have: {', '.join(map(str, get_args(Group)))}"
        raise UsageError(_PLACE, fact, step)
    if keep and not (precision in INTEGERS and all(isinstance(name, str) for name in keep)):
        fact = f"`keep` is {keep!r}, with precision {precision}"
        step = f"Give a list of names, with one of: {', '.join(INTEGERS)}"
        raise UsageError(_PLACE, fact, step)
    return WeightPrecision(precision, tuple(keep), group)


def _check_calibration(programs: Mapping[str, Program], precision: Precision) -> None:
    """Refuse programs without the samples that the precision needs, or with needless ones."""
    static = precision is Precision.INT8_STATIC
    for name, program in programs.items():
        if bool(len(program.calibration)) == static:
            continue
        fact = "has no samples for calibration" if static else "has samples for calibration"
        step = "Give `calibration`: inputs like those it will meet" if static else "Leave them out"
        raise UsageError(f"program {name} in {precision}", fact, step)


def _model_name(wanted: str, programs: Mapping[str, Program]) -> str:
    """Return the bundle's model name: the wanted one, else the class of its only module."""
    if wanted:
        if not _NAME.fullmatch(wanted):
            raise UsageError(_PLACE, f"a model cannot be called {wanted!r}", _NAMES)
        return wanted
    modules = [p.module for p in programs.values() if isinstance(p.module, torch.nn.Module)]
    kind = type(modules[0]).__name__ if len(modules) == len(programs) == 1 else "model"
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    return snake if _NAME.fullmatch(snake) else "model"


def _labelled(
    wanted: Mapping[str, Any] | None, programs: Mapping[str, Program], precision: Precision
) -> _LabelledData | None:
    """Return an accuracy gate for one of the programs; raise UsageError if it is invalid."""
    if wanted is None:
        return None
    place = "accuracy"
    try:
        gate = AccuracyGate.model_validate({"program": next(iter(programs)), **wanted, "data": "-"})
    except PydanticError as error:
        fault = error.errors()[0]
        where = ".".join([place, *map(str, fault["loc"])])
        step = f"Its fields: {', '.join(AccuracyGate.model_fields)}"
        raise UsageError(where, fault["msg"].removeprefix("Value error, "), step) from None
    data: Any = wanted.get("data")
    tensors = isinstance(data, Mapping) and all(isinstance(v, torch.Tensor) for v in data.values())
    if not tensors and not isinstance(data, (str, Path)):
        fact = "`data` is neither a file nor tensors by name"
        raise UsageError(place, fact, "Give a safetensors file, or the inputs and `labels`")
    if gate.program not in programs:
        step = f"There are: {', '.join(programs)}"
        raise UsageError(place, f"there is no program {gate.program!r}", step)
    judges = gate.has_largest_loss and precision is not Precision.FLOAT32
    return _LabelledData(gate, Path(data) if isinstance(data, str) else data, judges)


def _as_computed(programs: Sequence[Prepared]) -> dict[Dtype, Tolerance]:
    """Return tolerances by dtype; if all its outputs are cast from narrower floats, use theirs.

    A network in halves that returns float32, as under autocast, has the errors of halves.
    """
    allowed: dict[Dtype, list[Tolerance]] = {}
    for node in chain.from_iterable(output_nodes(each.program) for each in programs):
        if (dtype := DTYPES[fake_value(node).dtype]) in DEFAULT_TOLERANCES:
            computed = (DTYPES[each] for each in _computed_in(node) if each in DTYPES)
            known = (DEFAULT_TOLERANCES[each] for each in computed if each.is_floating)
            allowed.setdefault(dtype, []).append(max(known, key=_looseness))
    return {dtype: min(each, key=_looseness) for dtype, each in allowed.items()}


def _looseness(tolerance: Tolerance) -> tuple[float, float]:
    return tolerance.absolute, -(tolerance.snr_db or 0.0)


def _computed_in(output: Node) -> set[torch.dtype]:
    """Return the dtypes of an output and of rounding nodes among the producers of its floats."""
    found, waiting = {output}, [output]
    while waiting:
        before = set(waiting.pop().all_input_nodes) - found
        new = {n for n in before if any(t.is_floating_point() for t in tensors_of(n))}
        found |= new
        waiting += new
    return {t.dtype for n in found if n is output or _rounds(n) for t in tensors_of(n)}


def _rounds(node: Node) -> bool:
    """Return whether a node computes in a dtype, rather than only moving or casting elements."""
    name = str(node.target)
    if kind_of(node) is NodeKind.LAYOUT or any(word in name for word in _EXACT):
        return False
    before = {t.dtype for each in node.all_input_nodes for t in tensors_of(each)}
    return any(t.dtype in before for t in tensors_of(node))


def _tolerances(
    wanted: Mapping[Dtype | str, Tolerance | float] | None,
    precision: Precision,
    *,
    accuracy_judges: bool,
) -> dict[Dtype, Tolerance]:
    """Return a precision's tolerances, or those wanted; a number is the largest absolute error."""
    made = usual_tolerances(precision, accuracy_judges=accuracy_judges)
    for name, tolerance in (wanted or {}).items():
        text = str(name).removeprefix("torch.")
        if text not in DEFAULT_TOLERANCES:
            known = ", ".join(DEFAULT_TOLERANCES)
            raise UsageError(_PLACE, f"there is no tolerance for {text!r}", f"Known: {known}")
        try:
            made[Dtype(text)] = (
                tolerance if isinstance(tolerance, Tolerance) else Tolerance(absolute=tolerance)
            )
        except (TypeError, ValueError) as error:
            raise UsageError(_PLACE, f"tolerance of {text}: {error}") from None
    return made
