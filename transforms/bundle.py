"""Write a converted model's parts to a bundle folder: libraries, weights, goldens, manifest."""

from __future__ import annotations

import itertools
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from menagerie.format.bundle_manifest import (
    BundleManifest,
    BundleProgram,
    FileEntry,
    ReleaseState,
    Role,
    State,
    TensorSpec,
    unsealed,
)
from menagerie.format.folder import seal
from menagerie.numerics import DEFAULT_TOLERANCES
from menagerie.speech.recipe import HELD_OUT_FILE, SPEECH_FILE
from menagerie.tensor_files import read_notes
from menagerie.typed_json import document, from_json
from menagerie.validation.refuting import NOTE, Plan
from menagerie.validation.samples import sampled, table_of
from transforms.graph.call_signature import state_of
from transforms.graph.callable import WRAPPER_PREFIX
from transforms.graph.layouts import as_array, as_tensor, content_digest
from transforms.lowering.result import LoweredFile, LoweredProgram
from transforms.lowering.toolchain import find_compiler
from transforms.passes.quantisation import Quantised, Range, Scheme, quantised, scheme_of
from transforms.passes.round_weights import may_narrow, may_quantise
from transforms.sbom import SBOM_FILE, sbom_document
from zoo.precision import Precision, WeightPrecision

if TYPE_CHECKING:
    from transforms.eager import Gate, SpeechParts
    from transforms.export.prepare import Prepared
    from transforms.targets import Identity, Settings, Target

_WEIGHTS = "weights.safetensors"
_ACCURACY = "accuracy.safetensors"
_PARTS = _SCALES, _SHAPE, _OPERAND = (".scales", ".shape", ".operand")  # of a quantised weight
_GOLDEN_SHARE, _GOLDEN_BYTES = 10, 1_000_000  # of the weights, or that many bytes if that is more
_FEWER = "fewer.safetensors"
_SAMPLES = 65_536, 16_384, 4_096  # elements of an output; the first that suffices is used
_LENGTH = 8  # bytes before the header, which hold its length


def write_bundle(
    folder: Path,
    identity: Identity,
    programs: Sequence[Prepared],
    lowered: Sequence[LoweredProgram],
    settings: Settings,
    *,
    gate: Gate | None = None,
    speech: SpeechParts | None = None,
) -> BundleManifest:
    """Write weights, goldens and the manifest into `folder` and seal it with state `lowered`.

    The folder already has each program's files, as the target's `lower` made them.
    """
    target, weights = settings.target, _Weights(settings.kept)
    pairs = zip(programs, lowered, strict=True)
    entries = tuple(_entry(folder, prepared, made, weights) for prepared, made in pairs)
    save_file(weights.tensors, folder / _WEIGHTS)
    files = {Role.WEIGHTS: _WEIGHTS, **target.shared_files(folder)}
    if gate is not None:
        shutil.copyfile(gate.data, folder / _ACCURACY)
        files[Role.ACCURACY] = _ACCURACY
    if speech is not None:
        files |= _write_speech(folder, speech)
    files[Role.SBOM] = SBOM_FILE
    draft = BundleManifest(
        model=identity.model, target=target.name, runtime=target.runtime,
        build_key=identity.build_key, state=ReleaseState.LOWERED,
        requires=target.requirements(), programs=entries,
        accuracy=gate.facts if gate is not None else None,
        tolerances={**DEFAULT_TOLERANCES, **settings.tolerances},
        random_weights=identity.random_weights, source=identity.source, licence=identity.licence,
        versions=_versions(target), created=datetime.now(UTC).isoformat(timespec="seconds"),
        files={role: unsealed(path) for role, path in files.items()},
    )  # fmt: skip
    (folder / SBOM_FILE).write_bytes(sbom_document(folder, draft))
    return seal(folder, draft)


class _Weights:
    """The model's weights file under construction: equal tensors are stored once."""

    def __init__(self, kept: WeightPrecision) -> None:
        self.kept = kept
        self._scheme = scheme_of(kept)
        self._narrow = None if self._scheme else getattr(torch, kept.precision.value)
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[bytes, str] = {}

    def add(self, name: str, value: Tensor, ends: Range | None = None) -> str:
        """Store `value` in plain row-major order; return the name it is stored under.

        Float32 is stored in the kept type if every bit survives. `ends` are the range of the other
        operand in products of integers.
        """
        plain = value.detach().cpu().contiguous()
        key = content_digest(plain)
        if key not in self._names:
            stored = name.removeprefix(WRAPPER_PREFIX)
            while any(stored + part in self.tensors for part in ("", *_PARTS)):
                stored += "_"
            for part, tensor in self._parts(plain).items():
                # A clone has its own storage: safetensors refuses tensors that share memory.
                shared = tensor.untyped_storage().nbytes() > tensor.nbytes
                self.tensors[stored + part] = tensor.clone() if shared else tensor
            self._names[key] = stored
        self._widen_range(self._names[key], ends)
        return self._names[key]

    def _widen_range(self, stored: str, ends: Range | None) -> None:
        """Widen the range so that it also covers the operands of this program."""
        if ends is None or stored + _SCALES not in self.tensors:
            return
        low, high = self.tensors.get(stored + _OPERAND, torch.zeros(2)).tolist()
        wider = torch.tensor([min(low, ends[0]), max(high, ends[1])], dtype=torch.float32)
        self.tensors[stored + _OPERAND] = wider

    def _parts(self, value: Tensor) -> dict[str, Tensor]:
        if self._scheme is not None:
            found = quantised(value, self._scheme) if may_quantise(value) else None
            exact = found is not None and torch.equal(found.wide(), value)
            return _stored(found, self._scheme) if found is not None and exact else {"": value}
        narrow = value.to(self._narrow) if may_narrow(value) else value
        return {"": narrow if torch.equal(narrow.to(value.dtype), value) else value}


def _stored(weight: Quantised, scheme: Scheme) -> dict[str, Tensor]:
    if scheme.bits == torch.iinfo(torch.int8).bits:
        return {"": weight.values.reshape(weight.shape), _SCALES: weight.scales}
    shape = torch.tensor(weight.shape, dtype=torch.int64)
    return {"": weight.packed(), _SCALES: weight.scales, _SHAPE: shape}


def _by_tables(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with large noise replaced by its tables."""
    kept = dict(tensors)
    for key, value in tensors.items():
        case, part, name = key.split("/", 2)
        if part == "input" and (table := table_of(as_array(value))) is not None:
            kept[key] = as_tensor(table, value)
            kept[f"{case}/sizes/{name}"] = torch.tensor(value.shape)
    return kept


def _entry(
    folder: Path, prepared: Prepared, lowered: LoweredProgram, weights: _Weights
) -> BundleProgram:
    signature = prepared.signature
    golden = lowered.library.parent / "golden.safetensors"
    kinds = {str(number): case.kind.value for number, case in enumerate(prepared.goldens)}
    tensors = {
        f"{number}/{kind}/{name}": value.detach().clone().contiguous()
        for number, case in enumerate(prepared.goldens)
        for kind, named in (("input", case.inputs), ("output", case.outputs))
        for name, value in named.items()
    }
    save_with_metadata(_by_tables(tensors) | prepared.exact, golden, kinds)
    files = {
        Role.LIBRARY: LoweredFile(lowered.library),
        Role.GOLDEN: LoweredFile(golden),
        **_write_attempts(golden.with_name("refuting.safetensors"), prepared, weights.kept),
        **lowered.files,
    }
    state = tuple(n for n in state_of(prepared.program) if n in lowered.constants)
    return BundleProgram(
        name=prepared.name,
        files={role: _unsealed(folder, file) for role, file in files.items()},
        golden_cases=len(prepared.goldens),
        inputs=signature.inputs,
        outputs=signature.outputs,
        dimensions=signature.dimensions,
        constants={
            n: weights.add(n, v, prepared.operand_ranges.get(n))
            for n, v in sorted(lowered.constants.items())
        },
        symbols=lowered.record.symbols,
        state=State(constants=state, calls=prepared.calls) if state else None,
    )


def _unsealed(folder: Path, file: LoweredFile) -> FileEntry:
    path = file.path.relative_to(folder).as_posix()
    return unsealed(path, source_sha256=file.source_sha256, requires=file.requires)


def _write_attempts(
    path: Path, prepared: Prepared, kept: WeightPrecision
) -> dict[str, LoweredFile]:
    """Write eager's answers to attempts to refute the program; nothing if they cost too much."""
    found = prepared.refuting()
    if found is None:
        return {}
    plan, tensors = found
    if kept.precision is not Precision.FLOAT32:
        plan = replace(plan, excuse=f"weights are kept in {kept.precision}")
    save_with_metadata(tensors, path, {NOTE: document(plan).decode()})
    return {Role.REFUTING: LoweredFile(path)}


def _write_speech(folder: Path, speech: SpeechParts) -> dict[str, str]:
    (folder / SPEECH_FILE).write_bytes(document(speech.recipe, sort=False))
    if speech.held_out is None:
        return {Role.SPEECH: SPEECH_FILE}
    tensors = {n: torch.from_numpy(v.copy()) for n, v in speech.held_out.tensors().items()}
    save_file(tensors, folder / HELD_OUT_FILE)
    return {Role.SPEECH: SPEECH_FILE, Role.HELD_OUT: HELD_OUT_FILE}


def _versions(target: Target) -> dict[str, str]:
    packages = ("menagerie", "torch", "torchvision", "transformers", "numpy", "safetensors")
    return {
        **{p: version(p) for p in packages},
        "python": platform.python_version(),
        "compiler": find_compiler().version,
        **target.versions(),
    }


def keep_samples(folder: Path, manifest: BundleManifest) -> BundleManifest:
    """Keep samples of eager's outputs if they exceed a tenth of the weights, and 1 MB.

    Golden cases and attempts to refute the programs are counted separately; if samples of attempts
    exceed it too, only the first attempts are kept. Golden inputs stay whole, however large they
    are. A sealed bundle is sealed again.
    """
    most = max(manifest.files[Role.WEIGHTS].bytes / _GOLDEN_SHARE, _GOLDEN_BYTES)
    changed = [_thin(folder, manifest, role, most) for role in (Role.GOLDEN, Role.REFUTING)]
    return seal(folder, manifest) if any(changed) else manifest


def _thin(folder: Path, manifest: BundleManifest, role: str, most: float) -> bool:
    """Rewrite a role's files if they take more than `most` bytes; return whether they did."""
    programs = [program for program in manifest.programs if role in program.files]
    if sum(program.files[role].bytes for program in programs) <= most:
        return False
    paths = [folder / program.files[role].path for program in programs]
    files = [(load_file(path), read_notes(path)) for path in paths]
    for elements in _SAMPLES:
        thinned = [
            _sampled(tensors, program.outputs, elements)
            for (tensors, _), program in zip(files, programs, strict=True)
        ]
        if sum(value.nbytes for each in thinned for value in each.values()) <= most:
            break
    for path, tensors, (_, notes) in zip(paths, thinned, files, strict=True):
        if role == Role.REFUTING:
            tensors, notes = _first_attempts(tensors, notes, most / len(paths))  # noqa: PLW2901
        fewer = path.with_name(_FEWER)
        save_with_metadata(tensors, fewer, notes)
        fewer.replace(path)  # the old file is memory-mapped
    return True


def _sampled(
    tensors: Mapping[str, Tensor], outputs: Sequence[TensorSpec], most: int
) -> dict[str, Tensor]:
    """Return the tensors with at most `most` elements of each that belongs to an output."""
    kept, specs = dict(tensors), {spec.name: spec for spec in outputs}
    for key, value in tensors.items():
        case, part, name = key.split("/", 2)
        if part != "output":
            continue
        sample = sampled(as_array(value), specs[name].dtype, most)
        if sample is None:
            continue
        steps = tuple(slice(None, None, step) for step in sample.steps)
        for kind in ("output", "exact", "doubt"):
            if (found := tensors.get(f"{case}/{kind}/{name}")) is not None:
                kept[f"{case}/{kind}/{name}"] = found[steps].contiguous()
        kept[f"{case}/shape/{name}"] = torch.tensor(sample.shape)
        kept[f"{case}/steps/{name}"] = torch.tensor(sample.steps)
        kept[f"{case}/sums/{name}"] = torch.from_numpy(sample.sums)
    return kept


def _first_attempts(
    tensors: Mapping[str, Tensor], notes: Mapping[str, str], most: float
) -> tuple[dict[str, Tensor], dict[str, str]]:
    plan = from_json(Plan, notes[NOTE])
    sizes = [0] * len(plan.attempts)
    for key, value in tensors.items():
        sizes[int(key.split("/", 1)[0])] += value.nbytes
    count = sum(total <= most for total in itertools.accumulate(sizes))
    left_out = plan.left_out + len(sizes) - count
    fewer = replace(plan, attempts=plan.attempts[:count], left_out=left_out)
    kept = {key: value for key, value in tensors.items() if int(key.split("/", 1)[0]) < count}
    return kept, {NOTE: document(fewer).decode()}


def save_with_metadata(tensors: Mapping[str, Tensor], path: Path, notes: Mapping[str, str]) -> None:
    """Write tensors, and notes in the file's `__metadata__`."""
    save_file(dict(tensors), path, metadata=dict(notes))
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(size)) | {"__metadata__": dict(sorted(notes.items()))}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(_LENGTH)
        file.write(text.ljust(size))
