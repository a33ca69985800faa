"""A wrong result in a folder: the program, what to call it with, and how to see it again.

program.json           the smallest program found; see `program_file`
weights.safetensors    its weights
inputs.safetensors     its inputs: `0`, `1`, ... in order
divergence.json        what was found, and the tolerances it was judged by
README.md              the same for a person, with the command
"""

from __future__ import annotations

import logging
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file
from torch.export.graph_signature import ConstantArgument, InputKind

from menagerie.figures import decibels, error
from transforms.bisect.checked_graph import Unsafe
from transforms.bisect.comparing import Difference, difference
from transforms.bisect.cutting import Piece, capture, output_nodes
from transforms.bisect.piece import runner
from transforms.bisect.program_file import GRAPH, read_program, write_program
from zoo.errors import ArtifactError, UsageError
from zoo.records import Divergence
from zoo.spec import Dtype, PassChoice, Tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transforms.base import GraphPass, PassOptions
    from transforms.bisect.comparing import Tolerances
    from transforms.bisect.divergence import Runner

__all__ = ["Origin", "Rerun", "rerun", "save"]

_log = logging.getLogger(__name__)

_INPUTS, _FACTS, _README = "inputs.safetensors", "divergence.json", "README.md"
_ARCHIVE = "program.pt2"  # of earlier versions: reading it may run code

_NAMED = 8  # operators in the README
_IN_HASTE = """
The search ran out of time: the fault lies at this node or in what feeds it.
"""


class _Facts(BaseModel):
    """divergence.json."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    target: str
    choice: PassChoice | None  # the wrong pass with its options; None in lowering
    divergence: Divergence
    tolerances: dict[Dtype, Tolerance]
    torch: str


@dataclass(frozen=True)
class Origin:
    """How a program came to be: for which target, and by which options of the wrong pass."""

    target: str
    options: PassOptions


@dataclass(frozen=True)
class Rerun:
    """How far each output of a reproducer is from eager's, now."""

    outputs: tuple[tuple[str, Difference], ...]

    @property
    def passed(self) -> bool:
        """Whether the fault is gone."""
        return all(seen.passed for _, seen in self.outputs)

    def __str__(self) -> str:
        lines = [
            f"{name}: max abs error {error(seen.max_abs)}, SNR {decibels(seen.snr_db)}, "
            + ("within tolerance" if seen.passed else "WRONG")
            for name, seen in self.outputs
        ]
        return "\n".join(lines)


def save(
    folder: Path, piece: Piece, divergence: Divergence, origin: Origin, tolerances: Tolerances
) -> Divergence:
    """Write a reproducer, all of it or nothing.

    Args:
        folder: missing or empty; made when missing.
        piece: the program before the wrong pass, or the one that the target computes wrongly.
        divergence: what was found.
        origin: where it was found.
        tolerances: by which it was judged.

    Returns:
        The divergence with its reproducer; without, if the program cannot be written.
    """
    try:
        return _save(folder, piece, divergence, origin, tolerances)
    except Unsafe as error:
        _log.warning("no reproducer of %s: %s", divergence.node, error)
        return divergence


def _save(
    folder: Path, piece: Piece, divergence: Divergence, origin: Origin, tolerances: Tolerances
) -> Divergence:
    divergence = divergence.model_copy(update={"reproducer": folder})
    name = divergence.pass_name
    facts = _Facts(
        target=origin.target,
        choice=None if name is None else PassChoice(name=name, options=dict(origin.options)),
        divergence=divergence,
        tolerances={d: t for d in Dtype if (t := tolerances(d)) is not None},
        torch=torch.__version__,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as temporary:
        partial = Path(temporary) / folder.name
        partial.mkdir()
        _write(partial, piece)
        (partial / _FACTS).write_text(facts.model_dump_json(indent=2) + "\n")
        (partial / _README).write_text(_readme(piece, facts))
        partial.replace(folder)
    return divergence


def _write(folder: Path, piece: Piece) -> None:
    write_program(piece.program, folder)
    tensors = {str(i): t.detach().clone().contiguous() for i, t in enumerate(piece.inputs)}
    save_file(tensors, folder / _INPUTS)


def rerun(
    folder: Path,
    *,
    run: Runner | None = None,
    passes: Mapping[str, Callable[..., GraphPass]] | None = None,
) -> Rerun:
    """Run a reproducer again and compare with eager.

    Args:
        folder: as `save` wrote it.
        run: lowers and runs on the target; left out: as the target it was found on does.
        passes: the known passes by name; left out: this project's.

    Raises:
        UsageError: if the pass it is about does not exist any more.
        ArtifactError: if the folder is not a reproducer, or its program could do more than compute.
    """
    facts, piece = _load(folder)
    if facts.choice is not None:
        found = _rewritten(folder, facts.choice, piece, passes)
        values = capture(found, piece.inputs, _names(found))
        results = [values[name] for name in _names(found)]
    else:
        results = list((run or runner(facts.target))(piece.program, piece.inputs))
    expected = capture(piece.program, piece.inputs, _names(piece.program))
    pairs = zip(_names(piece.program), results, strict=True)
    return Rerun(tuple((n, difference(expected[n], out, facts.tolerances.get)) for n, out in pairs))


def _names(program: torch.export.ExportedProgram) -> list[str]:
    return [n.name for n in output_nodes(program)]


def _rewritten(
    folder: Path,
    choice: PassChoice,
    piece: Piece,
    passes: Mapping[str, Callable[..., GraphPass]] | None,
) -> torch.export.ExportedProgram:
    if passes is None:
        from transforms.pipeline import available_passes

        passes = available_passes()
    if choice.name not in passes:
        raise UsageError(str(folder), f"there is no pass {choice.name!r} any more")
    program, _ = passes[choice.name](**choice.options)(piece.program)
    return program


def _load(folder: Path) -> tuple[_Facts, Piece]:
    if (folder / _ARCHIVE).exists() and not (folder / GRAPH).exists():
        raise ArtifactError(
            str(folder),
            f"is of an earlier version, whose {_ARCHIVE} may hold code and is never opened",
            "Make it again: `zoo bisect`",
        )
    try:
        facts = _Facts.model_validate_json((folder / _FACTS).read_bytes())
        tensors = load_file(folder / _INPUTS)
        program = read_program(folder)
        inputs = tuple(tensors[str(i)] for i in range(_wanted(program)))
    except Unsafe as error:
        raise ArtifactError(
            str(folder), f"is not a reproducer of ours: {error}", "Do not trust where it came from"
        ) from error
    except Exception as error:  # torch raises many kinds here; all mean the same to the user
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArtifactError(str(folder), f"is not a reproducer ({first})") from error
    program.example_inputs = (inputs, {})
    return facts, Piece(program, inputs)


def _wanted(program: torch.export.ExportedProgram) -> int:
    """How many tensors the program is called with."""
    specs = program.graph_signature.input_specs
    given = [s for s in specs if s.kind is InputKind.USER_INPUT]
    return len([s for s in given if not isinstance(s.arg, ConstantArgument)])


def _readme(piece: Piece, facts: _Facts) -> str:
    found = facts.divergence
    calls = [n for n in piece.program.graph.nodes if n.op == "call_function"]
    where = f"pass `{found.pass_name}`" if found.pass_name else f"lowering for {facts.target}"
    origin = ", ".join(f"`{t}`" for t in (found.module_path, found.source_line) if t)
    shapes = "".join(f"- `{i}`: {list(t.shape)}, {t.dtype}\n" for i, t in enumerate(piece.inputs))
    named = ", ".join(f"`{n.target}`" for n in calls[:_NAMED])
    return f"""# Wrong result at `{found.node}`

Found in: {where}{f" ({origin})" if origin else ""}

Distance from eager PyTorch: max abs error {error(found.max_abs)}, SNR {decibels(found.snr_db)}.
The program has {len(calls)} operator(s): {named}{" ..." if len(calls) > _NAMED else ""}.
{"" if found.certain else _IN_HASTE}
Inputs:
{shapes}
Run it again (exit code 0: the fault is gone, 1: it is still there):

    {found.command}

Written with torch {facts.torch}, Python {sys.version.split()[0]}.
"""
