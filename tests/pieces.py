"""Runs a program, lowered for a target and sealed in a bundle, in a process without torch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

import menagerie
from transforms.bisect.pieces import lower_piece
from transforms.graph.interpret import output_nodes
from transforms.graph.layouts import as_array
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.export import ExportedProgram

    from transforms.targets import Target

_SECONDS = 600


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


def assert_as_eager(
    bundle: Path, module: Callable[..., Any], *calls: Sequence[torch.Tensor], **close: Any
) -> None:
    """Call a bundle's only program in this process, and compare it with what `module` returns.

    Args:
        bundle: the folder.
        module: returns a tensor, or a structure of several in the order of the program's outputs.
        calls: the inputs of each call, in order.
        close: `rtol` and `atol`, as torch.testing.assert_close has them; else each is 0.
    """
    with menagerie.open(bundle) as session, torch.no_grad():
        names = [each.name for each in session.inputs]
        for inputs in calls:
            given = {n: as_array(t) for n, t in zip(names, inputs, strict=True)}
            results, wanted = session.run(given).values(), tree_leaves(module(*inputs))
            for found, want in zip(results, wanted, strict=True):
                how = {"rtol": 0.0, "atol": 0.0, "equal_nan": True} | close
                whole = torch.from_numpy(found).view(want.dtype)
                torch.testing.assert_close(whole, want.contiguous(), **how)


class Apply(torch.nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        """Return what the function does."""
        return self.function(x)
