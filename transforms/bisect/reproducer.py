"""A wrong result in a folder: the program, what to call it with, and how to see it again.

program.pt2            a small program that shows it, by torch.export.save
inputs.safetensors     its inputs: `0`, `1`, ... in order
divergence.json        what was found, the tolerances it was judged by, and how to see it again

torch unpickles parts of a .pt2 file, which can run any code. So a program is opened only if it is,
to the byte, one that was written here, which is known by its digest under our home; or if the
caller says that a stranger's may be.
"""

from __future__ import annotations

import functools
import hashlib
import io
import logging
import operator
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from menagerie.numerics import Dtype, Tolerance
from menagerie.paths import home
from transforms.bisect.pieces import Piece, by_dtype, differences, judge_lowered
from transforms.export.call_signature import given
from transforms.graph.interpret import capture, output_nodes
from transforms.pipeline import make_passes
from zoo.base_models import Frozen
from zoo.errors import ArtifactError, SourceRefused
from zoo.records import Divergence
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from typing import Any

    from torch.export import ExportedProgram

    from transforms.bisect.pieces import Difference, Judge, Tolerances

_log = logging.getLogger(__name__)

_PROGRAM, _INPUTS, _FACTS = "program.pt2", "inputs.safetensors", "divergence.json"
_LIBRARIES = {"aten", "prims", "torchvision", "quantized_decomposed"}  # that every process has


class _Facts(Frozen):
    """divergence.json."""

    command: str  # exit code 0: the fault is gone, 1: it is still there
    target: str
    choice: PassChoice | None  # the wrong pass with its options; None in lowering
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
    """Write a reproducer, all of it or nothing.

    Args:
        folder: missing or empty; made when missing.
        piece: the program before the wrong pass, or the one that the target computes wrongly.
        divergence: what was found.
        target: where it was found.
        choice: the wrong pass; None in lowering.
        tolerances: by which it was judged.

    Returns:
        The divergence with its reproducer; without, if it calls operators that a fresh process
        does not have.
    """
    if own := _own_operators(piece.program):
        _log.warning("no reproducer of %s: it needs %s", divergence.node, ", ".join(own))
        return divergence
    divergence = divergence.model_copy(update={"reproducer": folder})
    facts = _Facts(
        command=divergence.command,
        target=target,
        choice=choice,
        divergence=divergence,
        tolerances=by_dtype(tolerances),
        torch=torch.__version__,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as temporary:
        partial = Path(temporary) / folder.name
        partial.mkdir()
        digest = write_program(piece.program, partial / _PROGRAM)
        tensors = {str(i): t.detach().clone().contiguous() for i, t in enumerate(piece.inputs)}
        save_file(tensors, partial / _INPUTS)
        (partial / _FACTS).write_text(facts.model_dump_json(indent=2) + "\n")
        partial.replace(folder)
    _known(digest).parent.mkdir(mode=0o700, exist_ok=True)
    _known(digest).touch()
    return divergence


def _own_operators(program: ExportedProgram) -> list[str]:
    called = {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    return sorted(str(each) for each in called if each.namespace not in _LIBRARIES)


def write_program(program: ExportedProgram, file: Path) -> str:
    """Write a program; returns the file's sha256."""
    written = io.BytesIO()
    with warnings.catch_warnings():  # of weights that are a part of their memory: it is all there
        warnings.filterwarnings("ignore", "No complete tensor found")
        torch.export.save(program, written)
    file.write_bytes(written.getvalue())
    return hashlib.sha256(written.getvalue()).hexdigest()


def read_program(file: Path, *, unpickle: bool) -> ExportedProgram:
    """A program as it was written.

    Args:
        file: of `write_program`.
        unpickle: whether to open one that was not written here, of which torch unpickles parts.

    Raises:
        SourceRefused: it was not written here, and `unpickle` is not given; none of it was read.
        OSError: the file cannot be read.
        Exception: it is no program; torch's many kinds.
    """
    content = file.read_bytes()
    if not unpickle and not _known(hashlib.sha256(content).hexdigest()).exists():
        raise SourceRefused(
            str(file),
            "is not opened: it was not written here, and torch unpickles parts of it",
            "Give --unpickle if you trust its author",
        )
    program = torch.export.load(io.BytesIO(content))
    for node in reversed(program.graph.nodes):  # torch adds results of calls that nothing reads
        if node.target is operator.getitem and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()
    return program


def _known(digest: str) -> Path:
    """A file that is there if a program of this sha256 was written here."""
    return home() / "reproducers" / digest


def rerun(
    folder: Path, *, unpickle: bool = False, judge: Judge | None = None
) -> dict[str, Difference]:
    """Run a reproducer again: how far each output is from eager's, now.

    Args:
        folder: as `save` wrote it.
        unpickle: whether to open one that was not written here.
        judge: lowers and runs a piece; left out: as the target it was found on does.

    Raises:
        UsageError: if the pass it is about does not exist any more.
        ArtifactError: if the folder is not a reproducer.
        SourceRefused: if it was not written here, and `unpickle` is not given.
    """
    facts, piece = _load(folder, unpickle=unpickle)
    if facts.choice is None:
        judge = judge or functools.partial(judge_lowered, target=facts.target)
        return judge(piece, facts.tolerances.get)
    [graph_pass] = make_passes([facts.choice])
    rewritten, _ = graph_pass(piece.program)
    names = [n.name for n in output_nodes(piece.program)]
    expected, actual = (_outputs(p, piece) for p in (piece.program, rewritten))
    return differences(
        dict(zip(names, expected, strict=True)), dict(zip(names, actual, strict=True)),
        facts.tolerances.get,
    )  # fmt: skip


def _outputs(program: ExportedProgram, piece: Piece) -> list[Any]:
    names = [n.name for n in output_nodes(program)]
    values = capture(program, piece.inputs, names)
    return [values[name] for name in names]


def _load(folder: Path, *, unpickle: bool) -> tuple[_Facts, Piece]:
    try:
        facts = _Facts.model_validate_json((folder / _FACTS).read_bytes())
        tensors = load_file(folder / _INPUTS)
        program = read_program(folder / _PROGRAM, unpickle=unpickle)
        wanted = sum(isinstance(value, torch.Tensor) for value in given(program))
        inputs = tuple(tensors[str(i)] for i in range(wanted))
    except SourceRefused:
        raise
    except Exception as error:  # torch raises many kinds here; all mean the same to the user
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArtifactError(str(folder), f"is not a reproducer ({first})") from error
    program.example_inputs = (inputs, {})
    return facts, Piece(program, inputs)
