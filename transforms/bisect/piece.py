"""Lowers a piece of a program for a target and runs it once, in a process of its own."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transforms.export.prepare import Prepared
from transforms.export.signature import given, signature_of
from transforms.export.trace import Exported
from transforms.goldens.cases import GoldenCase
from transforms.graph.interpret import capture, output_nodes
from transforms.stages import Identity, lower, transform
from transforms.targets import Target, target_named
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

    from transforms.bisect.comparing import Runner

_WIDEST = (1, 2**31, 1)  # sessions check ranges; this run is about numbers
_SECONDS = 600


def runner(target: Target | str) -> Runner:
    """What lowers and runs programs on `target`, emulated where there is no such device."""
    return functools.partial(run_piece, target=target)


def run_piece(
    program: ExportedProgram, inputs: Sequence[torch.Tensor], *, target: Target | str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Lower `program`, seal it as a bundle in a temporary folder, and run it there.

    Args:
        program: before the passes for the device, with example inputs.
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
        names = lower_piece(bundle, program, inputs, target=target)
        given = {f"input_{i}": tensor for i, tensor in enumerate(inputs)}
        results = run_bundle(bundle, given, folder, target=str(target))
        dtypes = {
            name: n.meta["val"].dtype for name, n in zip(names, output_nodes(program), strict=True)
        }
        return tuple(torch.from_numpy(results[name]).to(dtypes[name]) for name in names)


def run_bundle(
    bundle: Path, inputs: Mapping[str, torch.Tensor], folder: Path, *, target: str
) -> dict[str, np.ndarray[Any, Any]]:
    """What a bundle computes, by `menagerie run`: its process has no torch to bind to.

    Args:
        bundle: the folder.
        inputs: by name.
        folder: for files.
        target: for messages.

    Returns:
        Its outputs by name; bfloat16 as the float32 that it is a part of.

    Raises:
        SessionError: if the runtime refuses it, crashes, or takes longer than ten minutes.
    """
    answers = folder / "outputs.npz"
    command = [sys.executable, "-P", "-m", "menagerie.cli", "run", "--allow-unsigned", str(bundle)]
    command += ["--output", str(answers)]
    for name, tensor in inputs.items():
        plain = tensor.detach().cpu()
        array = (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
        command += ["--input", f"{name}={folder / name}.npy"]
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
    with np.load(answers, allow_pickle=False) as archive:
        return dict(archive)


def lower_piece(
    bundle: Path,
    program: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    *,
    target: Target | str = "cpu",
) -> tuple[str, ...]:
    """Lower any program and write a bundle of it, its golden case what it yields.

    Args:
        bundle: a folder to be made.
        program: as it is before the target's passes for its device, which are run.
        inputs: a tensor for each input, in order.
        target: where it is to run.

    Returns:
        The names of its outputs, in order.

    Raises:
        LoweringError: if it cannot be lowered.
    """
    made = target_named(target)
    programs = transform([_prepared(program, inputs)], (), made).programs
    lower(bundle, Identity("piece", made, "0" * 64, "a piece of a model"), programs, seconds=0)
    return programs[0].exported.output_names


def _prepared(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> Prepared:
    """Every symbolic size is a dimension of its own, as wide as can be."""
    outputs = output_nodes(program)
    sizes: dict[str, str] = {}
    shapes: dict[str, list[int | str]] = {}
    for number, value in enumerate(given(program)):
        shapes[f"input_{number}"] = [
            s if isinstance(s, int) else sizes.setdefault(str(s), f"d{len(sizes)}")
            for s in value.shape
        ]
    names = [f"output_{i}" for i in range(len(outputs))]
    ranges = dict.fromkeys(sizes.values(), _WIDEST)
    expected = capture(program, inputs, [n.name for n in outputs])
    golden = GoldenCase(
        dimensions={},
        inputs=dict(zip(shapes, inputs, strict=True)),
        outputs={name: expected[n.name] for name, n in zip(names, outputs, strict=True)},
    )
    signature = signature_of(program, shapes, names, ranges)
    eager = program.module(check_guards=False)
    return Prepared(
        "main", Exported(program, signature), [golden], lambda given: eager(*given.values())
    )
