"""A wrong result in a folder: the program, what to call it with, and how to see it again.

program.pt2            the smallest program found, by torch.export.save
inputs.safetensors     its inputs: `0`, `1`, ... in order
divergence.json        what was found, and the tolerances it was judged by
README.md              the same for a person, with the command

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
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from menagerie.figures import decibels, error
from menagerie.numerics import Dtype, Tolerance
from menagerie.paths import home
from transforms.bisect.pieces import Piece, differences
from transforms.export.prepare import Prepared
from transforms.export.signature import given, signature_of
from transforms.export.trace import Exported
from transforms.goldens.cases import GoldenCase
from transforms.graph.interpret import capture, output_nodes
from transforms.stages import Identity, lower, transform
from transforms.targets import Target, target_named
from zoo.base_models import Frozen
from zoo.errors import ArtifactError, SessionError, SourceRefused, UsageError
from zoo.records import Divergence
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.export import ExportedProgram

    from transforms.bisect.pieces import Difference, Runner, Tolerances
    from transforms.graph.graph_pass import GraphPass, PassOptions


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


_log = logging.getLogger(__name__)

_PROGRAM, _INPUTS = "program.pt2", "inputs.safetensors"
_FACTS, _README = "divergence.json", "README.md"
_LIBRARIES = {"aten", "prims", "torchvision", "quantized_decomposed"}  # that every process has

_NAMED = 8  # operators in the README
_IN_HASTE = """
The search ran out of time: the fault is at this node or in what feeds it.
"""


class _Facts(Frozen):
    """divergence.json."""

    target: str
    choice: PassChoice | None  # the wrong pass with its options; None in lowering
    divergence: Divergence
    tolerances: dict[Dtype, Tolerance]
    torch: str


@dataclass(frozen=True)
class Rerun:
    """How far each output of a reproducer is from eager's, now."""

    outputs: Mapping[str, Difference]

    @property
    def passed(self) -> bool:
        """Whether the fault is gone."""
        return all(seen.passed for seen in self.outputs.values())

    def __str__(self) -> str:
        lines = [
            f"{name}: max abs error {error(seen.max_abs)}, SNR {decibels(seen.snr_db)}, "
            + ("within tolerance" if seen.passed else "WRONG")
            for name, seen in self.outputs.items()
        ]
        return "\n".join(lines)


def save(
    folder: Path,
    piece: Piece,
    divergence: Divergence,
    *,
    target: str,
    options: PassOptions,
    tolerances: Tolerances,
) -> Divergence:
    """Write a reproducer, all of it or nothing.

    Args:
        folder: missing or empty; made when missing.
        piece: the program before the wrong pass, or the one that the target computes wrongly.
        divergence: what was found.
        target: where it was found.
        options: those of the wrong pass.
        tolerances: by which it was judged.

    Returns:
        The divergence with its reproducer; without, if it calls operators that a fresh process
        does not have.
    """
    if own := _own_operators(piece.program):
        _log.warning("no reproducer of %s: it needs %s", divergence.node, ", ".join(own))
        return divergence
    divergence = divergence.model_copy(update={"reproducer": folder})
    name = divergence.pass_name
    facts = _Facts(
        target=target,
        choice=None if name is None else PassChoice(name=name, options=dict(options)),
        divergence=divergence,
        tolerances={d: t for d in Dtype if (t := tolerances(d)) is not None},
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
        (partial / _README).write_text(_readme(piece, facts))
        partial.replace(folder)
    _known(digest).parent.mkdir(mode=0o700, exist_ok=True)
    _known(digest).touch()
    return divergence


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


def _own_operators(program: ExportedProgram) -> list[str]:
    called = {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}
    return sorted(str(each) for each in called if each.namespace not in _LIBRARIES)


def rerun(
    folder: Path,
    *,
    unpickle: bool = False,
    run: Runner | None = None,
    passes: Mapping[str, Callable[..., GraphPass]] | None = None,
) -> Rerun:
    """Run a reproducer again and compare with eager.

    Args:
        folder: as `save` wrote it.
        unpickle: whether to open one that was not written here.
        run: lowers and runs on the target; left out: as the target it was found on does.
        passes: the known passes by name; left out: this project's.

    Raises:
        UsageError: if the pass it is about does not exist any more.
        ArtifactError: if the folder is not a reproducer.
        SourceRefused: if it was not written here, and `unpickle` is not given.
    """
    facts, piece = _load(folder, unpickle=unpickle)
    results: Sequence[torch.Tensor]
    if (choice := facts.choice) is not None:
        if passes is None:
            from transforms.pipeline import available_passes

            passes = available_passes()
        if choice.name not in passes:
            raise UsageError(str(folder), f"there is no pass {choice.name!r} any more")
        rewritten, _ = passes[choice.name](**choice.options)(piece.program)
        results = _outputs(rewritten, piece.inputs)
    else:
        results = (run or runner(facts.target))(piece.program, piece.inputs)
    names = [n.name for n in output_nodes(piece.program)]
    expected = _outputs(piece.program, piece.inputs)
    return Rerun(differences(names, expected, results, facts.tolerances.get))


def _outputs(program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    names = [n.name for n in output_nodes(program)]
    values = capture(program, inputs, names)
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

On another machine add `--unpickle`, if you trust its author: torch unpickles parts of
{_PROGRAM}, which can run any code.

Written with torch {facts.torch}, Python {sys.version.split()[0]}.
"""
