"""The stages that need the model in memory, done in this process by functions of transforms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.job import ExportRecord, Job, PullRecord
from tasks.stage_table import ModelHolder
from transforms.bisect import diagnose
from transforms.eager import Gate, SpeechParts, accuracy_gate, eager_program, speech_parts
from transforms.export.prepare import Prepared, prepare
from transforms.goldens.entry import real_sample, samples
from transforms.passes.quantisation import Call
from transforms.stages import LowerRecord, TransformRecord, export, lower, transform
from transforms.targets import Settings, target_named
from zoo import sources
from zoo.errors import ExportError
from zoo.records import Diagnosis, Suspected
from zoo.sources import LoadedModel
from zoo.sources.context import Context
from zoo.sources.transformers import with_pieces
from zoo.sources.use import calibration_data, gate_data, use_recipe
from zoo.spec import ProgramSpec, SpeechSpec


class ModelStages(ModelHolder):
    """The model of a job, and the results of its stages so far.

    `forks` says whether this process may be forked (`transforms.export.prepare`).
    """

    def __init__(self, job: Job, *, forks: bool = False) -> None:
        self._job = job
        self._forks = forks
        self._loaded: LoadedModel | None = None
        self._original: dict[str, Prepared] = {}  # before the passes
        self._prepared: tuple[Prepared, ...] = ()  # after them

    def pull(self) -> PullRecord:
        """Load or create the weights and build the model, once for all its jobs."""
        if self._loaded is None:
            self._loaded = self._load()
        return _pulled(self._loaded)

    def _load(self) -> LoadedModel:
        """Load the model; raise SourceError, too, if labels or tokens for its use are missing."""
        job = self._job
        loaded = sources.load(
            job.model,
            job.spec,
            origin=job.origin,
            random_weights=job.seed,
            allow_factories=job.allow_factories,
        )
        if job.spec.use is not None:
            use_recipe(job.spec.use, job.spec.source, self._context())
        elif loaded.random_weights is None:
            self._worded()
        return loaded

    def export(self) -> ExportRecord:
        """Export all programs and compute their golden cases with eager, once for all jobs."""
        if not self._original:
            made = export(self._job.spec.programs, self._export)
            self._original = {program.name: program for program in made}
        return ExportRecord(programs=tuple(self._original))

    def transform(self) -> TransformRecord:
        """Run the graph passes over every program."""
        spec = self._job.spec
        self._prepared, record = transform(
            self._original.values(),
            self._settings(),
            calibration={program.name: self._calibration(program) for program in spec.programs},
        )
        return record

    def lower(self) -> LowerRecord:
        """Compile every program and write the bundle, sealed as `lowered`."""
        job = self._job
        return lower(
            job.bundle,
            job.identity(_pulled(self._model())),
            self._prepared,
            self._settings(),
            gate=self._gate(),
            speech=self._speech(),
        )

    def locate(self, suspects: Sequence[Suspected]) -> Diagnosis:
        """Find where the lowered programs diverge from eager, within the job's time for a search.

        A small program that reproduces the fault is written to `Job.reproducer`.
        """
        job = self._job
        return diagnose(
            self._original,
            suspects,
            self._settings(),
            folder=job.reproducer,
            seconds=job.search_seconds,
        )

    def switch_to(self, job: Job) -> bool:
        """See `ModelHolder.switch_to`; the new job has the same model."""
        self._job, self._prepared = job, ()
        return True

    def __exit__(self, *_: object) -> None:
        self._loaded = None
        self._prepared, self._original = (), {}

    def _settings(self) -> Settings:
        job, spec = self._job, self._job.spec
        return Settings(
            target=target_named(job.target),
            passes=spec.passes,
            kept=spec.kept,
            tolerances=spec.own_tolerances,
            threads=job.threads,
        )

    def _export(self, spec: ProgramSpec) -> Prepared:
        real = real_sample(self._job.spec, spec, self._context())
        return prepare(self._model().module, spec, real, forks=self._forks)

    def _gate(self) -> Gate | None:
        gate = self._job.spec.accuracy
        if gate is None:
            return None
        data = gate_data(gate, self._job.spec.use, self._context())
        program = next(p for p in self._job.spec.programs if p.name == gate.program)
        eager = eager_program(self._model().module, program)
        trained = self._model().random_weights is None
        judges = self._job.spec.accuracy_judges
        return accuracy_gate(eager, gate, data, judges=judges, trained=trained)

    def _calibration(self, program: ProgramSpec) -> Iterable[Call]:
        spec = self._job.spec
        if not spec.calibration:
            return ()
        data = calibration_data(spec, self._context())
        return samples(program, data, alone=len(spec.programs) == 1)

    def _speech(self) -> SpeechParts | None:
        spec = self._job.spec
        if spec.use is not None:
            return SpeechParts(use_recipe(spec.use, spec.source, self._context()), None)
        if spec.speech is None:
            return None
        loaded = self._model()
        speech = self._worded() if loaded.random_weights is None else spec.speech
        given = loaded.module, speech or spec.speech, spec.programs, self._context()
        return speech_parts(*given, judges=spec.accuracy_judges)

    def _worded(self) -> SpeechSpec | None:
        """Return the entry's speech with its tokens; raise SourceError if their number differs."""
        spec = self._job.spec
        return spec.speech and with_pieces(spec.speech, spec.source, self._context())

    def _context(self) -> Context:
        return Context(self._job.model, self._job.origin.parent)

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise ExportError(self._job.model, "there is no model yet: its pull has not run")
        return self._loaded


def _pulled(loaded: LoadedModel) -> PullRecord:
    return PullRecord(
        source=loaded.description,
        parameters=sum(p.numel() for p in loaded.module.parameters()),
        random_weights=loaded.random_weights,
    )
