"""A wrong result in a folder: the program, its inputs, and how to rerun it.

program.pt2            a small program that shows it, written by torch.export.save
inputs.safetensors     its inputs: `0`, `1`, ... in order
divergence.json        the divergence, the tolerances it was judged by, and how to rerun it

Programs are opened as `transforms.loading` describes.
"""

from __future__ import annotations

import functools
import io
import logging
import tempfile
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.export import ExportedProgram

from menagerie.numerics import Dtype, Tolerance
from menagerie.validation.findings import OutputParity
from transforms.bisect.pieces import Judge, Piece, Tolerances, judge_lowered, judge_rewritten
from transforms.graph.call_signature import given
from transforms.loading import known, read_program
from transforms.pipeline import make_passes
from zoo.base_models import Frozen
from zoo.errors import ArtifactError, SourceRefused
from zoo.records import Divergence
from zoo.sources.context import first_line
from zoo.spec import PassChoice

_log = logging.getLogger(__name__)

_PROGRAM, _INPUTS, _FACTS = "program.pt2", "inputs.safetensors", "divergence.json"
_LIBRARIES = {"aten", "prims", "torchvision", "quantized_decomposed"}  # that every process has


class _Facts(Frozen):
    """divergence.json."""

    command: str  # exit code 0: the fault is gone, 1: it is still there
    target: str
    choice: PassChoice | None  # the wrong pass with its options; None for lowering
    divergence: Divergence
    tolerances: dict[Dtype, Tolerance]
    torch: str


def save(
    folder: Path,
    piece: Piece,
    divergence: Divergence,
    *,
    target: str,
    choice: PassChoice | None,
    tolerances: Tolerances,
) -> Divergence:
    """Write a complete reproducer into a missing or empty folder, or write nothing.

    The piece is the program before the wrong pass, which is `choice`; if that is None, it is the
    program that the target computes wrongly. The returned divergence names the reproducer, unless
    none was written because the piece calls operators that a fresh process lacks.
    """
    targets = {node.target for node in piece.program.graph.nodes}
    called = [each for each in targets if isinstance(each, torch._ops.OpOverload)]
    if own := sorted(str(each) for each in called if each.namespace not in _LIBRARIES):
        _log.warning("no reproducer of %s: it needs %s", divergence.node, ", ".join(own))
        return divergence
    divergence = divergence.model_copy(update={"reproducer": folder})
    facts = _Facts(
        command=divergence.command, target=target, choice=choice, divergence=divergence,
        tolerances=dict(tolerances), torch=torch.__version__,
    )  # fmt: skip
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as temporary:
        partial = Path(temporary) / folder.name
        partial.mkdir()
        program = write_program(piece.program, partial / _PROGRAM)
        tensors = {str(i): t.detach().clone().contiguous() for i, t in enumerate(piece.inputs)}
        save_file(tensors, partial / _INPUTS)
        (partial / _FACTS).write_text(facts.model_dump_json(indent=2) + "\n")
        partial.replace(folder)
    mark = known(program)
    mark.parent.mkdir(mode=0o700, exist_ok=True)
    mark.touch()
    return divergence


def write_program(program: ExportedProgram, file: Path) -> bytes:
    """Write a program; return its bytes, since the file may have changed by then."""
    written = io.BytesIO()
    with warnings.catch_warnings():  # on weights that are part of a larger, saved memory
        warnings.filterwarnings("ignore", "No complete tensor found")
        torch.export.save(program, written)
    file.write_bytes(written.getvalue())
    return written.getvalue()


def rerun(
    folder: Path, *, unpickle: bool = False, judge: Judge | None = None
) -> dict[str, OutputParity]:
    """Rerun a reproducer by `judge`, or on its target; return its current distance from eager.

    Raise UsageError if the pass no longer exists, ArtifactError if the folder is not a reproducer,
    and SourceRefused if it was not written here and `unpickle` is not given.
    """
    facts, piece = _load(folder, unpickle=unpickle)
    if facts.choice is None:
        judge = judge or functools.partial(judge_lowered, target=facts.target)
        return judge(piece, facts.tolerances)
    [graph_pass] = make_passes([facts.choice])
    return judge_rewritten(piece, facts.tolerances, graph_pass=graph_pass)


def _load(folder: Path, *, unpickle: bool) -> tuple[_Facts, Piece]:
    try:
        facts = _Facts.model_validate_json((folder / _FACTS).read_bytes())
        tensors = load_file(folder / _INPUTS)
        program = read_program(folder / _PROGRAM, unpickle=unpickle)
        wanted = sum(isinstance(value, torch.Tensor) for value in given(program))
        inputs = tuple(tensors[str(i)] for i in range(wanted))
    except SourceRefused:
        raise
    except Exception as error:  # torch raises many types; all mean the same to the user
        raise ArtifactError(str(folder), f"is not a reproducer ({first_line(error)})") from error
    program.example_inputs = (inputs, {})
    return facts, Piece(program, inputs)
