"""Lowers a program for a target and runs it once, in a process that ends with the run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import load_file, save_file

import transforms.bisect.session_process
from transforms.bisect.cutting import capture, output_nodes
from transforms.bundle import Identity, ProgramParts, write_bundle
from transforms.export import Exported
from transforms.golden import GoldenCase
from transforms.lowering.targets import lower
from zoo.errors import SessionError
from zoo.spec import (
    Dimension,
    Dtype,
    FactorySource,
    InputSpec,
    Licence,
    ModelSpec,
    ProgramSpec,
    Sample,
    SampleKind,
    Target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch.export import ExportedProgram

__all__ = ["run_piece", "write_piece"]

_WIDEST = Dimension(low=1, high=2**31)  # sessions check ranges; this run is about numbers
_SECONDS = 600


def run_piece(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], *, target: Target = Target.CPU
) -> tuple[torch.Tensor, ...]:
    """Lower `program`, seal it as a bundle in a temporary folder, and run it there.

    Args:
        program: after the graph passes, with example inputs.
        inputs: a tensor for each input, in order.
        target: where it runs; emulated where this machine has no such device.

    Returns:
        Its outputs in order.

    Raises:
        LoweringError: if it cannot be lowered.
        SessionError: if the runtime refuses it, crashes, or takes longer than ten minutes.
    """
    with tempfile.TemporaryDirectory(prefix="menagerie-") as temporary:
        folder = Path(temporary)
        bundle = folder / "bundle"
        names = write_piece(bundle, program, inputs, target=target)
        tensors = {f"input_{i}": t.detach().clone().contiguous() for i, t in enumerate(inputs)}
        save_file(tensors, folder / "inputs.safetensors")
        _run(bundle, folder / "inputs.safetensors", folder / "outputs.safetensors", target)
        results = load_file(folder / "outputs.safetensors")
        return tuple(results[name].clone() for name in names)


def _run(bundle: Path, inputs: Path, outputs: Path, target: Target) -> None:
    # By file, not by module: the package would load torch, whose shims must not meet the runtime's.
    script = Path(transforms.bisect.session_process.__file__)
    root = str(script.parents[2])
    command = [sys.executable, "-P", str(script), root, str(bundle), str(inputs), str(outputs)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SessionError(target, f"the run took longer than {_SECONDS} s") from error
    if done.returncode < 0:
        raise SessionError(target, f"the run was killed by signal {-done.returncode}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise SessionError(target, lines[-1] if lines else f"exit code {done.returncode}")


def write_piece(
    bundle: Path,
    program: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    *,
    target: Target = Target.CPU,
) -> tuple[str, ...]:
    """Lower any program and write a bundle of it, with what it yields as golden case.

    Args:
        bundle: a folder to be made.
        program: after the graph passes.
        inputs: a tensor for each input, in order.
        target: where it is to run.

    Returns:
        The names of its outputs, in order.

    Raises:
        LoweringError: if it cannot be lowered.
    """
    spec = _program_spec(program)
    outputs = output_nodes(program)
    names = tuple(f"output_{i}" for i in range(len(outputs)))
    expected = capture(program, inputs, [n.name for n in outputs])
    lowered = lower(program, bundle, target, name=spec.name)
    golden = GoldenCase(
        dimensions={},
        inputs={i.name: t for i, t in zip(spec.inputs, inputs, strict=True)},
        outputs={name: expected[n.name] for name, n in zip(names, outputs, strict=True)},
    )
    exported = Exported(program, tuple(i.name for i in spec.inputs), names)
    model = ModelSpec(
        summary="a piece of a model",
        source=FactorySource(kind="factory", builder="zoo.models.builders.none:none"),
        programs=(spec,),
        licence=Licence(spdx="LicenseRef-none"),
    )
    identity = Identity("piece", target, "0" * 64, "a piece of a model", None)
    write_bundle(bundle, identity, model, [ProgramParts(spec, exported, lowered, [golden])])
    return names


def _program_spec(program: ExportedProgram) -> ProgramSpec:
    """Inputs as the program has them; every symbolic size is a dimension of its own name."""
    nodes = {n.name: n for n in program.graph.nodes}
    dimensions: dict[str, Dimension] = {}
    symbols: dict[str, str] = {}
    specs = []
    for number, name in enumerate(program.graph_signature.user_inputs):
        value = nodes[str(name)].meta["val"]
        shape: list[int | str] = []
        for size in value.shape:
            if isinstance(size, int):
                shape.append(size)
                continue
            axis = symbols.setdefault(str(size), f"d{len(symbols)}")
            dimensions[axis] = _WIDEST
            shape.append(axis)
        specs.append(
            InputSpec(
                name=f"input_{number}",
                shape=tuple(shape),
                dtype=Dtype(str(value.dtype).removeprefix("torch.")),
                sample=Sample(kind=SampleKind.ONES),
            )
        )
    return ProgramSpec(name="main", inputs=tuple(specs), dimensions=dimensions)
