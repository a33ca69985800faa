"""The stages between an exported program and a bundle: passes, lowering, writing."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from transforms.bundle import ProgramParts, write_bundle
from transforms.calibration import fitting_calls, operand_ranges
from transforms.graph.record import record_graph
from transforms.pipeline import passes_in, rounding_passes, run_passes
from transforms.rounding_costs import rounding_costs
from zoo.precision import Kept, Precision
from zoo.records import LoweringRecord, PassLog, ProgramGraphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torch.export import ExportedProgram

    from menagerie.format.bundle_manifest import BundleManifest
    from transforms.bundle import Gate, Identity
    from transforms.calibration import Call, Range
    from transforms.export.prepare import Prepared
    from transforms.speech_parts import SpeechParts
    from transforms.targets import PassItem, Target
    from zoo.spec import Dtype, Tolerance

__all__ = ["Built", "Rewritten", "build", "rewrite"]

_FLOATS = Kept()


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A program after the passes, and what they did."""

    prepared: Prepared
    log: PassLog
    graphs: ProgramGraphs


@dataclasses.dataclass(frozen=True)
class Built:
    """A bundle that was written, in state `lowered`."""

    manifest: BundleManifest
    lowering: tuple[LoweringRecord, ...]

    @property
    def weights_bytes(self) -> int:
        """Size of the weights file."""
        return self.manifest.weights.bytes


def rewrite(
    prepared: Prepared,
    passes: Sequence[PassItem] | None,
    target: Target,
    *,
    kept: Kept = _FLOATS,
    calibration: Iterable[Call] = (),
) -> Rewritten:
    """Run graph passes over a program, and round its weights to a precision.

    Args:
        prepared: the program.
        passes: None for the target's own list.
        target: what it is lowered for.
        kept: how the weights will be kept.
        calibration: for `int8-static`: samples of the inputs, in order.

    Raises:
        UsageError: for a pass that does not exist or an option it does not take, a precision that
            the target does not compute in, or a parameter to keep that there is not.
        PassError: if a pass broke its contract.
    """
    before = prepared.exported.program
    ranges: dict[str, Range] = {}
    if kept.precision is Precision.FLOAT32:
        after, log = run_passes(
            before, passes_in(kept, passes, target), target=target, name=prepared.name
        )
    else:
        after, log, ranges = _rounded(prepared, passes, target, kept, calibration)
    exported = dataclasses.replace(prepared.exported, program=after)
    graphs = ProgramGraphs(
        program=prepared.name, before=record_graph(before), after=record_graph(after)
    )
    made = dataclasses.replace(prepared, exported=exported, operand_ranges=ranges)
    return Rewritten(made, log, graphs)


def _rounded(
    prepared: Prepared,
    passes: Sequence[PassItem] | None,
    target: Target,
    kept: Kept,
    calibration: Iterable[Call],
) -> tuple[ExportedProgram, PassLog, dict[str, Range]]:
    """Run the passes, one of which rounds weights; what that costs, and what they meet."""
    run = functools.partial(run_passes, target=target, name=prepared.name)
    rounding = rounding_passes(kept, target)
    whole, log = run(prepared.exported.program, target.general_passes if passes is None else passes)
    rounded, last = run(whole, rounding)
    inputs = [prepared.goldens[0].inputs[name] for name in prepared.exported.input_names]
    calls = fitting_calls(f"program {prepared.name}", calibration, inputs)
    ranges = operand_ranges(whole, rounded, calls)
    integers = kept.precision.multiplies_integers
    costs = rounding_costs(whole, rounded, inputs, integers=integers, ranges=ranges)
    finished, device = run(rounded, target.device_passes)
    records = (*log.records, *last.records, *device.records)
    return finished, PassLog(program=prepared.name, records=records, rounding=costs), ranges


def build(
    folder: Path,
    identity: Identity,
    programs: Sequence[Prepared],
    *,
    tolerances: Mapping[Dtype, Tolerance] | None = None,
    gate: Gate | None = None,
    speech: SpeechParts | None = None,
    kept: Kept = _FLOATS,
) -> Built:
    """Lower programs for the identity's target and write the bundle of them.

    Args:
        folder: to be made.
        identity: what the bundle is.
        programs: after the passes; equal weights of theirs are stored once.
        tolerances: those that differ from the usual ones.
        gate: the accuracy gate, if there is one.
        speech: the recipe, if the model understands speech.
        kept: how weights are kept, where that loses nothing; `rewrite` rounds them.

    Raises:
        UnsupportedKernels: listing every fallback kernel that the target's runtime lacks.
        LoweringError: if code generation or a compiler fails.
    """
    parts = [
        ProgramParts(
            name=prepared.name,
            exported=prepared.exported,
            lowered=identity.target.lower(prepared.exported.program, folder, name=prepared.name),
            goldens=prepared.goldens,
            calls=prepared.calls,
            exact=prepared.exact,
            operand_ranges=prepared.operand_ranges,
        )
        for prepared in programs
    ]
    manifest = write_bundle(
        folder,
        identity,
        parts,
        tolerances=tolerances or {},
        gate=gate,
        speech=speech,
        kept=kept,
    )
    return Built(manifest, tuple(p.lowered.record for p in parts))
