"""The stages that need the model in memory, done in this process by the functions of transforms."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from tasks.job import (
    ExportedProgramSize,
    ExportRecord,
    LowerRecord,
    PullRecord,
    TransformRecord,
)
from tasks.stages import HeldHere
from transforms.accuracy import eager_accuracy
from transforms.bisect import locate
from transforms.bundle import Identity, ProgramParts, write_bundle
from transforms.graph_record import record_graph
from transforms.latency import measure_beside_eager
from transforms.lowering import targets
from transforms.pipeline import make_passes, run_passes
from transforms.prepare import Prepared, prepare
from zoo import sources
from zoo.errors import ExportError, SessionError
from zoo.records import Diagnosis, ProgramGraphs
from zoo.sources.context import Context, resolve_inside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from menagerie.format.bundle_manifest import BundleManifest
    from tasks.job import Job, Suspect
    from zoo.records import Divergence, Measurement
    from zoo.sources import LoadedModel
    from zoo.spec import ProgramSpec

__all__ = ["ModelStages"]

_log = logging.getLogger(__name__)

_NOTHING_FOUND = (
    "Lowered and run by itself, each suspected program agrees with eager: the fault lies in the "
    "bundle, in how often or beside what it is run, or in inputs that were not tried"
)


class ModelStages(HeldHere):
    """One job's model, and what the stages have made of it so far; a new one for every job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._loaded: LoadedModel | None = None
        self._prepared: dict[str, Prepared] = {}
        self._original: dict[str, Prepared] = {}  # before the passes

    def pull(self) -> PullRecord:
        """Fetch or make the weights and build the model."""
        job = self._job
        self._loaded = sources.load(
            job.model,
            job.spec,
            origin=job.origin,
            random_weights=job.seed,
            allow_factories=job.allow_factories,
        )
        return PullRecord(
            source=self._loaded.description,
            parameters=sum(p.numel() for p in self._loaded.module.parameters()),
            random_weights=self._loaded.random_weights,
        )

    def export(self) -> ExportRecord:
        """Export every program and compute its golden cases with eager PyTorch."""
        return ExportRecord(programs=tuple(self._export(p) for p in self._job.spec.programs))

    def transform(self) -> TransformRecord:
        """Run the graph passes over every program."""
        self._original = dict(self._prepared)
        logs, graphs = [], []
        for name, prepared in self._original.items():
            program, log = run_passes(
                prepared.exported.program, self._job.spec.passes, target=self._job.target, name=name
            )
            exported = dataclasses.replace(prepared.exported, program=program)
            self._prepared[name] = dataclasses.replace(prepared, exported=exported)
            logs.append(log)
            before, after = record_graph(prepared.exported.program), record_graph(program)
            graphs.append(ProgramGraphs(program=name, before=before, after=after))
        return TransformRecord(passes=tuple(logs), graphs=tuple(graphs))

    def lower(self) -> LowerRecord:
        """Compile every program and write the bundle, sealed as `lowered`."""
        job = self._job
        parts = [self._lower(p) for p in job.spec.programs]
        manifest = write_bundle(
            job.bundle, self._identity(), job.spec, parts, accuracy=self._accuracy()
        )
        measured = () if manifest.requires.emulated_here else self._measured()
        return LowerRecord(
            lowering=tuple(p.lowered.record for p in parts),
            artifact_latency=tuple((name, artifact) for name, artifact, _ in measured),
            eager_latency=tuple((name, eager) for name, _, eager in measured),
            weights_bytes=_weights_bytes(manifest),
        )

    def locate(self, suspects: Sequence[Suspect]) -> Diagnosis:
        """Find where the lowered programs diverge from eager; the job says for how long.

        The smallest program with the fault goes to `Job.reproducer`.
        """
        end = time.monotonic() + self._job.search_seconds
        for suspect in suspects:
            cases = range(len(self._original[suspect.program].goldens))
            for case in cases if suspect.case is None else (suspect.case,):
                found = self._locate(suspect.program, case, end - time.monotonic())
                if found is not None:
                    return Diagnosis(program=suspect.program, case=case, divergence=found)
        return Diagnosis(detail=_NOTHING_FOUND)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loaded = None
        self._prepared.clear()
        self._original.clear()

    def _export(self, spec: ProgramSpec) -> ExportedProgramSize:
        prepared = prepare(self._model().module, spec)
        self._prepared[spec.name] = prepared
        return ExportedProgramSize(
            program=spec.name,
            nodes=len(prepared.exported.program.graph.nodes),
            golden_cases=len(prepared.goldens),
        )

    def _measured(self) -> tuple[tuple[str, Measurement, Measurement], ...]:
        """Each program's latency beside eager's; none where one of them cannot be run.

        Why it cannot is found out, and said, by the validation that follows.
        """
        try:
            return tuple(
                (
                    spec.name,
                    *measure_beside_eager(
                        self._job.bundle,
                        self._model().module,
                        spec,
                        self._prepared[spec.name].goldens,
                        threads=self._job.threads,
                    ),
                )
                for spec in self._job.spec.programs
            )
        except SessionError as error:
            _log.warning("No latencies: %s", error)
            return ()

    def _lower(self, spec: ProgramSpec) -> ProgramParts:
        prepared = self._prepared[spec.name]
        program, target = prepared.exported.program, self._job.target
        return ProgramParts(
            spec=spec,
            exported=prepared.exported,
            lowered=targets.lower(program, self._job.bundle, target, name=spec.name),
            goldens=prepared.goldens,
        )

    def _locate(self, program: str, case: int, seconds: float) -> Divergence | None:
        job, prepared = self._job, self._original[program]
        return locate(
            prepared.exported.program,
            make_passes(job.spec.passes, target=job.target),
            list(prepared.goldens[case].inputs.values()),
            target=job.target,
            tolerances=job.spec.tolerance,
            folder=job.reproducer,
            seconds=seconds,
        )

    def _identity(self) -> Identity:
        loaded = self._model()
        return Identity(
            model=self._job.model,
            target=self._job.target,
            build_key=self._job.build_key,
            source=loaded.description,
            random_weights=loaded.random_weights,
        )

    def _accuracy(self) -> tuple[Path, float] | None:
        gate = self._job.spec.accuracy
        if gate is None:
            return None
        data = resolve_inside(gate.data, Context(self._job.model, self._job.origin.parent))
        return data, eager_accuracy(self._model().module, self._job.spec, gate, data)

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise ExportError(self._job.model, "there is no model yet: its pull has not run")
        return self._loaded


def _weights_bytes(manifest: BundleManifest) -> int:
    return manifest.files[manifest.weights].bytes
