"""Puts a converted model's parts into a bundle folder: libraries, weights, goldens, manifest."""

from __future__ import annotations

import hashlib
import platform
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from menagerie.format.bundle_manifest import (
    AccuracyData,
    BundleManifest,
    BundleProgram,
    Emulation,
    ReleaseState,
    TensorSpec,
)
from menagerie.format.folder import seal
from menagerie.zig import zig_version
from transforms.lowering.inductor import metal_header
from transforms.lowering.targets import host_requirements, requirements
from transforms.lowering.toolchain import find_compiler
from zoo.spec import DEFAULT_TOLERANCES, Dtype, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from transforms.export import Exported
    from transforms.golden import GoldenCase
    from transforms.lowering.lowered import LoweredProgram, MetalParts
    from zoo.spec import ModelSpec, ProgramSpec

__all__ = ["Identity", "ProgramParts", "write_bundle"]

_WEIGHTS = "weights.safetensors"
_ACCURACY = "accuracy.safetensors"
_SHADER_HEADER = "shaders.h.metal"
_WRAPPER_PREFIX = "model."  # CallableProgram holds the model under this name


@dataclass(frozen=True)
class ProgramParts:
    """What the stages made of one program; the library already lies in the bundle folder."""

    spec: ProgramSpec
    exported: Exported
    lowered: LoweredProgram
    goldens: Sequence[GoldenCase]


@dataclass(frozen=True)
class Identity:
    """Which conversion this is."""

    model: str
    target: Target
    build_key: str
    source: str
    random_weights: int | None


def write_bundle(
    folder: Path,
    identity: Identity,
    spec: ModelSpec,
    programs: Sequence[ProgramParts],
    *,
    accuracy: tuple[Path, float] | None = None,
) -> BundleManifest:
    """Write weights, goldens and the manifest into `folder` and seal it with state `lowered`.

    Args:
        folder: the bundle, holding each program's library where `lower` put it.
        identity: what the bundle is.
        spec: the model's entry.
        programs: one a program of the entry.
        accuracy: the gate's data file and eager's accuracy on it, if the entry has a gate.
    """
    weights = _Weights()
    entries = tuple(_entry(folder, parts, weights) for parts in programs)
    save_file(weights.tensors, folder / _WEIGHTS)
    draft = BundleManifest(
        model=identity.model,
        target=identity.target.value,
        build_key=identity.build_key,
        state=ReleaseState.LOWERED,
        requires=requirements(identity.target),
        programs=entries,
        weights=_WEIGHTS,
        shader_header=_shader_header(folder, entries),
        accuracy=_accuracy(folder, spec, accuracy),
        tolerances={**DEFAULT_TOLERANCES, **spec.tolerances},
        random_weights=identity.random_weights,
        source=identity.source,
        licence=spec.licence.spdx,
        versions=_versions(identity.target),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        files={},
    )
    return seal(folder, draft)


class _Weights:
    """The model's weights file in the making: equal tensors are stored once, whoever uses them."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[bytes, str] = {}

    def add(self, name: str, value: torch.Tensor) -> str:
        """Store `value` in plain row-major order; return the name it is stored under."""
        plain = value.detach().cpu().contiguous()
        key = _content(plain)
        if key in self._names:
            return self._names[key]
        stored = name.removeprefix(_WRAPPER_PREFIX)
        while stored in self.tensors:
            stored += "_"
        # A clone of its own storage: safetensors refuses tensors that share memory.
        self.tensors[stored] = (
            plain.clone() if plain.untyped_storage().nbytes() > plain.nbytes else plain
        )
        self._names[key] = stored
        return stored


def _content(value: torch.Tensor) -> bytes:
    digest = hashlib.sha256(f"{value.dtype}{tuple(value.shape)}".encode())
    digest.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    return digest.digest()


def _entry(folder: Path, parts: ProgramParts, weights: _Weights) -> BundleProgram:
    spec, library, metal = parts.spec, parts.lowered.library, parts.lowered.metal
    golden = library.parent / "golden.safetensors"
    save_file(_golden_tensors(parts.goldens), golden)
    inputs, outputs = _tensor_specs(parts)
    return BundleProgram(
        name=spec.name,
        library=library.relative_to(folder).as_posix(),
        shaders=metal.shaders.relative_to(folder).as_posix() if metal and metal.shaders else None,
        emulation=_emulation(folder, metal) if metal else None,
        golden=golden.relative_to(folder).as_posix(),
        golden_cases=len(parts.goldens),
        inputs=inputs,
        outputs=outputs,
        dimensions={n: (d.low, d.high, d.multiple_of) for n, d in spec.dimensions.items()},
        constants={n: weights.add(n, v) for n, v in sorted(parts.lowered.constants.items())},
        symbols=parts.lowered.record.symbols,
    )


def _emulation(folder: Path, metal: MetalParts) -> Emulation | None:
    if metal.emulation is None:
        return None
    return Emulation(
        library=metal.emulation.relative_to(folder).as_posix(),
        source_sha256=metal.source_sha256,
        requires=host_requirements(),
    )


def _shader_header(folder: Path, programs: Sequence[BundleProgram]) -> str | None:
    """Write what all shaders share, if there are any; returns its place in the bundle."""
    if all(program.shaders is None for program in programs):
        return None
    (folder / _SHADER_HEADER).write_text(metal_header())
    return _SHADER_HEADER


def _golden_tensors(cases: Sequence[GoldenCase]) -> dict[str, torch.Tensor]:
    return {
        f"{number}/{kind}/{name}": value.detach().clone().contiguous()
        for number, case in enumerate(cases)
        for kind, tensors in (("input", case.inputs), ("output", case.outputs))
        for name, value in tensors.items()
    }


def _tensor_specs(parts: ProgramParts) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs with their dimensions' names; outputs with names where an axis equals a dimension."""
    program = parts.exported.program
    signature = program.graph_signature
    values = {n.name: n.meta["val"] for n in program.graph.nodes if "val" in n.meta}
    symbols: dict[str, str] = {}
    inputs = []
    for spec, node in zip(parts.spec.inputs, signature.user_inputs, strict=True):
        value = values[str(node)]
        for axis, size in enumerate(spec.shape):
            if isinstance(size, str):
                symbols[str(value.shape[axis])] = size
        inputs.append(TensorSpec(name=spec.name, dtype=_dtype(value), shape=spec.shape))
    outputs = tuple(
        TensorSpec(
            name=name, dtype=_dtype(values[str(node)]), shape=_shape(values[str(node)], symbols)
        )
        for name, node in zip(parts.exported.output_names, signature.user_outputs, strict=True)
    )
    return tuple(inputs), outputs


def _shape(value: Any, symbols: Mapping[str, str]) -> tuple[int | str, ...]:
    return tuple(s if isinstance(s, int) else symbols.get(str(s), "?") for s in value.shape)


def _dtype(value: Any) -> Dtype:
    return Dtype(str(value.dtype).removeprefix("torch."))


def _accuracy(
    folder: Path, spec: ModelSpec, accuracy: tuple[Path, float] | None
) -> AccuracyData | None:
    if spec.accuracy is None or accuracy is None:
        return None
    data, eager = accuracy
    shutil.copyfile(data, folder / _ACCURACY)
    gate = spec.accuracy
    return AccuracyData(
        file=_ACCURACY,
        program=gate.program,
        output=gate.output,
        batch=gate.batch,
        eager_accuracy=eager,
    )


def _versions(target: Target) -> dict[str, str]:
    packages = ("menagerie", "torch", "torchvision", "transformers", "numpy", "safetensors")
    return {
        **{p: version(p) for p in packages},
        "python": platform.python_version(),
        "compiler": find_compiler().version,
        **({"zig": zig_version()} if target is Target.METAL else {}),
    }
