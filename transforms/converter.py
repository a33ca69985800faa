"""One call from a module to a proven bundle: export, passes, lowering, proof."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch.export import ExportedProgram

from menagerie.format.archive import require_free_place
from menagerie.format.bundle_manifest import BundleManifest, ReleaseState
from menagerie.validation import Limits, validate
from transforms.build import build, rewrite
from transforms.bundle import Identity, content_digest
from transforms.diagnosis import diagnose, failed_proof
from transforms.export.program import Program, prepare_own
from transforms.latency import measure_beside_eager
from transforms.pipeline import passes_in
from transforms.quantised import INTEGERS
from transforms.targets import target_named
from zoo.build_key import code_digest
from zoo.bundle_differences import reseal
from zoo.errors import MenagerieError, UsageError
from zoo.precision import Kept
from zoo.records import ConversionReport, Diagnosis, StageTime, dearest, suspected, with_latencies
from zoo.report import write_report
from zoo.signing import sign_own
from zoo.spec import DEFAULT_TOLERANCES, Dtype, Group, Precision, Tolerance, usual_tolerances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.export.prepare import Prepared
    from transforms.targets import Target
    from zoo.records import ProgramGraphs
    from zoo.spec import PassChoice

__all__ = ["ConvertedBundle", "convert"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAMES = "Use lower-case letters, digits and `_`, a letter first"
_PLACE = "convert"
_MOST_THREADS = 256  # as the command line has it


@dataclass(frozen=True)
class ConvertedBundle:
    """A proven bundle.

    Attributes:
        folder: of the bundle.
        manifest: its manifest.json.
        report: its report.json; `report.worst_snr_db` and `report.worst_abs` say how near it is to
            eager, `report.validation` everything.
    """

    folder: Path
    manifest: BundleManifest
    report: ConversionReport


def convert(
    module: torch.nn.Module | ExportedProgram | Mapping[str, Program | tuple[Any, ...]],
    inputs: Sequence[torch.Tensor] | Mapping[str, torch.Tensor] = (),
    *,
    target: str | Target = "cpu",
    out: Path | str,
    kwargs: Mapping[str, torch.Tensor] | None = None,
    dynamic_shapes: Any = None,
    names: Mapping[str, Sequence[str]] | None = None,
    calls: int = 4,
    calibration: Sequence[Sequence[torch.Tensor]] = (),
    passes: Sequence[str | PassChoice] | None = None,
    tolerances: Mapping[Dtype | str, Tolerance | float] | None = None,
    precision: Precision | str = Precision.FLOAT32,
    keep: Sequence[str] = (),
    group: int | None = None,
    model: str = "",
    licence: str = "",
    threads: int = 1,
    measure_seconds: float = 1.0,
    search_seconds: float = 0.0,
) -> ConvertedBundle:
    """Convert a module and prove that the result computes what eager PyTorch does.

    The proof runs in a fresh process without torch: on `inputs`, and, where sizes are dynamic, on
    inputs of the lowest, highest and odd sizes (`transforms.goldens.examples` says how they are
    made). `out` appears when all of it has passed, not before, signed with keys of this user's own,
    which are made on first use: so it opens on this machine, and elsewhere once they are trusted.

    Args:
        module: in eval mode, or exported already; or a mapping from names to `Program`s, or to
            tuples of what makes one (module, inputs): several programs of one bundle, whose equal
            weights are stored once.
        inputs: a tuple of example tensors, on the CPU; or tensors by name. An ExportedProgram has
            its own.
        target: its name, or a Target.
        out: the folder to make; missing or empty.
        kwargs: further tensors by name, as torch.export has them.
        dynamic_shapes: as torch.export has it; every range needs a largest size.
        names: `{"inputs": [...], "outputs": [...]}`, either may be left out.
        calls: of a module that keeps state in buffers: how many calls, one after another, prove
            it. The artifact begins with the buffers as they are now; `Session.reset` brings these
            back.
        calibration: for the precision `int8-static`: samples of what it will meet, each the inputs
            of a call in the graph's order, positions before names.
        passes: graph passes in order, names or choices with options; None for the target's.
        tolerances: by dtype of an output; a number is the largest absolute error.
        precision: what float32 weights are kept in, and rounded to before; a tolerance of float32
            outputs that is left out is then the one of the precision.
        keep: parameters, or layers, whose weights are not rounded to integers.
        group: with a weight-only precision: how many integers of a row share a scale, 32, 64, 128
            or 256; left out: 128 of eight bits, 32 of four.
        model: what the bundle calls it; left out: the module's class.
        licence: of the weights, an SPDX identifier.
        threads: that the artifact and eager are timed with.
        measure_seconds: that each program is timed for, in turns with eager; 0: none is.
        search_seconds: how long the wrong node is looked for when the proof fails.

    Raises:
        UsageError: the call itself is wrong.
        ExportError: torch.export or eager fails, or the program needs what no target has, each by
            its module and line.
        LoweringError: the target lacks kernels (UnsupportedKernels, all at once), or its compiler
            failed.
        ValidationError: the artifact differs from eager: which output, by how much, what to do.
    """
    folder = _free(Path(out))
    alone: Any = None if isinstance(module, Mapping) else module
    single = Program(
        alone,
        inputs,
        kwargs or {},
        dynamic_shapes,
        names or {},
        calls=calls,
        calibration=calibration,
    )
    programs = _programs(module, single)
    _check_time(threads, measure_seconds=measure_seconds, search_seconds=search_seconds)
    kept = _kept(precision, keep, group)
    _check_calibration(programs, kept.precision)
    wish = _Wish(
        name=_model_name(model, programs),
        target=target_named(target),
        passes=passes,
        tolerances=_tolerances(tolerances, kept.precision),
        kept=kept,
        licence=licence,
        threads=threads,
        measure_seconds=measure_seconds,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        bundle = Path(temporary) / "bundle"
        made = _make(bundle, wish, programs)
        if not made.report.validation.passed:
            search = made.search(folder.with_name(f"{folder.name}-divergence"), search_seconds)
            raise failed_proof(made.report.validation, search, dearest(made.report.passes))
        manifest = made.seal(bundle)
        sign_own(bundle)
        bundle.replace(folder)
    return ConvertedBundle(folder, manifest, made.report)


@dataclass(frozen=True)
class _Wish:
    """What is asked for."""

    name: str
    target: Target
    passes: Sequence[str | PassChoice] | None
    tolerances: Mapping[Dtype, Tolerance]
    kept: Kept
    licence: str
    threads: int
    measure_seconds: float


@dataclass(frozen=True)
class _Made:
    """A bundle that was judged, and what it was made of."""

    wish: _Wish
    programs: Sequence[Prepared]  # before the passes
    graphs: Sequence[ProgramGraphs]
    draft: BundleManifest
    report: ConversionReport

    def seal(self, bundle: Path) -> BundleManifest:
        """Put the report into a bundle that passed, and seal it in the state that was proven."""
        write_report(self.report, bundle, graphs=self.graphs)
        emulated = self.report.validation.emulated
        return reseal(
            bundle, self.draft, ReleaseState.EMULATED if emulated else ReleaseState.VALIDATED
        )

    def search(self, folder: Path, seconds: float) -> Diagnosis | None:
        """Look for the node that is wrong; None where nobody asked for it."""
        if seconds <= 0:
            return None
        programs = {program.name: program for program in self.programs}
        allowed = {**DEFAULT_TOLERANCES, **self.wish.tolerances}
        try:
            return diagnose(
                programs,
                suspected(self.report.validation, list(programs)),
                passes_in(self.wish.kept, self.wish.passes, self.wish.target),
                target=self.wish.target,
                tolerances=allowed.get,
                folder=folder,
                seconds=seconds,
            )
        except MenagerieError as error:  # the verdict stands
            return Diagnosis(detail=f"The search for the cause ended early: {error}")


def _make(bundle: Path, wish: _Wish, programs: Mapping[str, Program]) -> _Made:
    """Go through the stages, each with its time."""
    clock = _Clock()
    originals = [prepare_own(name, program) for name, program in programs.items()]
    clock.ended("export")
    done = [
        rewrite(
            each,
            wish.passes,
            wish.target,
            kept=wish.kept,
            calibration=programs[each.name].calibration,
        )
        for each in originals
    ]
    prepared = [each.prepared for each in done]
    clock.ended("transform")
    identity = Identity(wish.name, wish.target, _key(wish, prepared), licence=wish.licence)
    built = build(bundle, identity, prepared, tolerances=wish.tolerances, kept=wish.kept)
    seconds, threads = wish.measure_seconds, wish.threads
    artifacts, eager = measure_beside_eager(
        bundle, prepared, wish.target, threads=threads, seconds=seconds
    )
    clock.ended("lower")
    limits = Limits(threads=threads, measure_seconds=0.0 if artifacts else seconds)
    validation = with_latencies(validate(bundle, limits=limits, allow_unsigned=True), artifacts)
    clock.ended("validate")
    report = ConversionReport(
        model=wish.name,
        summary="",
        target=wish.target.name,
        build_key=identity.build_key,
        source="",
        random_weights=None,
        licence=wish.licence,
        parameters=sum(t.numel() for p in prepared for t in p.exported.program.parameters()),
        weights_bytes=built.weights_bytes,
        passes=tuple(each.log for each in done),
        lowering=built.lowering,
        validation=validation,
        eager_latency=eager,
        stages=tuple(clock.stages),
        versions=built.manifest.versions,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return _Made(wish, originals, [each.graphs for each in done], built.manifest, report)


class _Clock:
    """Times stages that follow each other."""

    def __init__(self) -> None:
        self.stages: list[StageTime] = []
        self._began = time.perf_counter()

    def ended(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages.append(StageTime(stage=stage, seconds=now - self._began))
        self._began = now


def _key(wish: _Wish, programs: Sequence[Prepared]) -> str:
    """The hash of the programs as they are lowered, their weights, the target and our code."""
    facts = wish.name, wish.target.name, wish.target.platform, str(wish.kept)
    digest = hashlib.sha256(" ".join(facts).encode())
    digest.update(code_digest().encode())
    digest.update(str(sorted(wish.target.versions().items())).encode())
    digest.update(torch.__version__.encode())
    for program in programs:
        exported = program.exported
        digest.update(str(sorted(program.operand_ranges.items())).encode())
        digest.update(f"{program.name} {exported.signature} {exported.program.graph}".encode())
        for name, value in sorted(
            {**exported.program.state_dict, **exported.program.constants}.items()
        ):
            if isinstance(value, torch.Tensor):
                digest.update(name.encode() + content_digest(value))
    return digest.hexdigest()


def _free(folder: Path) -> Path:
    """The folder to make.

    Raises:
        UsageError: there is something in its place.
    """
    require_free_place(folder)
    return folder.absolute()


def _programs(module: Any, single: Program) -> dict[str, Program]:
    """The bundle's programs by name; one alone is called `main`.

    Raises:
        UsageError: a name or a program is none.
    """
    if not isinstance(module, Mapping):
        return {"main": _checked("program main", single)}
    beside = single.inputs, single.kwargs, single.dynamic_shapes, single.names, single.calibration
    if any(beside):
        fact = "several programs were given, and inputs or names beside them"
        raise UsageError(_PLACE, fact, "Give them with each: {'main': Program(module, (x,))}")
    if not module:
        raise UsageError(_PLACE, "there is no program to convert", "Name at least one")
    for name in module:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(_PLACE, f"a program cannot be called {name!r}", _NAMES)
    return {name: _checked(f"program {name}", program) for name, program in module.items()}


def _checked(place: str, program: Program | tuple[Any, ...]) -> Program:
    """The program, made of a tuple where it is one.

    Raises:
        UsageError: it is neither, or its module is none.
    """
    most = sum(not field.kw_only for field in dataclasses.fields(Program))
    if isinstance(program, tuple) and 0 < len(program) <= most:
        program = Program(*program)
    if not isinstance(program, Program):
        kind = type(program).__name__
        fact = f"is a {kind} of {len(program)}" if isinstance(program, tuple) else f"is a {kind}"
        raise UsageError(place, fact, "Give a Program(module, inputs), or a tuple of that")
    module: object = program.module
    if not isinstance(module, (torch.nn.Module, ExportedProgram)):
        kind = type(module).__name__
        raise UsageError(place, f"is a {kind}", "Give a torch.nn.Module or an ExportedProgram")
    return program


def _check_time(threads: int, **seconds: float) -> None:
    """Refuse what would be found out after minutes.

    Raises:
        UsageError: a number is none of threads or seconds.
    """
    if not isinstance(threads, int) or not 0 < threads <= _MOST_THREADS:
        fact = f"there are no {threads!r} threads"
        raise UsageError(_PLACE, fact, f"Give `threads` from 1 to {_MOST_THREADS}")
    for name, value in seconds.items():
        if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise UsageError(_PLACE, f"`{name}` is {value!r}", "Give 0 or more")


def _kept(wanted: Precision | str, keep: Sequence[str], group: int | None) -> Kept:
    """How the weights are kept.

    Raises:
        UsageError: there is no precision of that name, or it has no such groups.
    """
    try:
        precision = Precision(wanted)
    except ValueError:
        known = ", ".join(Precision)
        raise UsageError(_PLACE, f"there is no precision {wanted!r}", f"Known: {known}") from None
    if group is not None and (not precision.has_groups or group not in get_args(Group)):
        fact = f"{precision} has no groups of {group!r}"
        step = f"Weight-only precisions have: {', '.join(map(str, get_args(Group)))}"
        raise UsageError(_PLACE, fact, step)
    if keep and (isinstance(keep, str) or precision not in INTEGERS):
        fact = f"`keep` is {keep!r}, with precision {precision}"
        step = f"Give a list of names, with one of: {', '.join(INTEGERS)}"
        raise UsageError(_PLACE, fact, step)
    return Kept(precision, tuple(keep), group)


def _check_calibration(programs: Mapping[str, Program], precision: Precision) -> None:
    """Nothing where each program has samples if the precision needs them, and none has else.

    Raises:
        UsageError: it is not so.
    """
    static = precision is Precision.INT8_STATIC
    for name, program in programs.items():
        if bool(len(program.calibration)) == static:
            continue
        fact = "has no samples for calibration" if static else "has samples for calibration"
        step = "Give `calibration`: inputs like those it will meet" if static else "Leave them out"
        raise UsageError(f"program {name} in {precision}", fact, step)


def _model_name(wanted: str, programs: Mapping[str, Program]) -> str:
    """What the bundle calls its model: what is wanted, else the class of its only module.

    Raises:
        UsageError: the wanted name is none.
    """
    if wanted:
        if not _NAME.fullmatch(wanted):
            raise UsageError(_PLACE, f"a model cannot be called {wanted!r}", _NAMES)
        return wanted
    modules = [p.module for p in programs.values() if isinstance(p.module, torch.nn.Module)]
    kind = type(modules[0]).__name__ if len(modules) == len(programs) == 1 else "model"
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    return snake if _NAME.fullmatch(snake) else "model"


def _tolerances(
    wanted: Mapping[Dtype | str, Tolerance | float] | None, precision: Precision
) -> dict[Dtype, Tolerance]:
    """Tolerances by dtype over those that a precision has; a number is the largest absolute error.

    Raises:
        UsageError: a dtype is none, or has no tolerance.
    """
    made = usual_tolerances(precision)
    for name, tolerance in (wanted or {}).items():
        text = str(name).removeprefix("torch.")
        if text not in DEFAULT_TOLERANCES:
            known = ", ".join(DEFAULT_TOLERANCES)
            raise UsageError(_PLACE, f"there is no tolerance for {text!r}", f"Known: {known}")
        try:
            made[Dtype(text)] = (
                tolerance if isinstance(tolerance, Tolerance) else Tolerance(absolute=tolerance)
            )
        except ValueError as error:
            raise UsageError(_PLACE, str(error)) from None
    return made
