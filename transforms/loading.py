"""Loading of a program named by a line of text: a torch.export file, or code to import.

The command line needs it to call `convert`; inputs and dynamic sizes are written as text too.
torch unpickles parts of a .pt2 file, which can run any code. So a program is opened only if its
bytes were written here, which its digest under our home shows, or if the caller allows files from
elsewhere.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import operator
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from menagerie.numerics import Dtype
from menagerie.paths import home
from menagerie.tensor_files import read_array
from transforms.export.prepare import Program
from transforms.graph.guards import torch_unheard
from zoo.errors import SourceError, SourceRefused, UsageError
from zoo.sources.context import Context, first_line
from zoo.sources.factory import build

_SHAPE = re.compile(r"(\d+(?:x\d+)*|scalar)(?::(\w+)(?::(-?\d+)\.\.(-?\d+))?)?")
_DYNAMIC = re.compile(r"(\w+:\d+(?:,\w+:\d+)*)=(\d+)\.\.(\d+)")
_SHAPE_FORM = "Write [NAME=]1x3x224x224, 1x16:int64:0..999 or a .npy file"
_OTHER_VALUES = "Leave the range, or give the values in a .npy file"
_DYNAMIC_FORM = "Write NAME:AXIS=LOW..HIGH, e.g. x:0=1..64; x:0,mask:0=1..64 where sizes are equal"
_CODE = "It is to be package.module:callable, which returns a torch.nn.Module, without arguments"


def load_program(
    what: str, inputs: Sequence[str], dynamic: Sequence[str], *, unpickle: bool = False
) -> Program:
    """Load the program to convert.

    Args:
        what: a .pt2 file of torch.export.save, or `package.module:callable`; the callable returns
            the module, or is it. The current folder is searched first.
        inputs: texts for `read_input`, each with its name or in the order of forward's parameters;
            a .pt2 file has its own.
        dynamic: `NAME:AXIS=LOW..HIGH`; axes that always have equal sizes share a text, with commas.
        unpickle: whether to open a .pt2 file from elsewhere, parts of which torch unpickles.

    Raise UsageError if a text is wrong, SourceRefused if the file was not written here and
    `unpickle` is not given, SourceError if the file cannot be read, or the code raised.
    """
    if _holds_code(what):
        fact = "is a TorchScript archive, which torch.export does not read"
        raise SourceError(what, fact, f"Give the code that it was made from. {_CODE}")
    if what.endswith(".pt2"):
        if inputs or dynamic:
            raise UsageError(what, "has inputs and sizes of its own", "Leave --input and --dynamic")
        return Program(read_program(Path(what), unpickle=unpickle))
    module = _made(what)
    if not inputs and isinstance(module, torch.nn.Module):
        raise UsageError(what, "is not called without inputs", f"Give --input. {_SHAPE_FORM}")
    arguments, keywords = [], {}
    for text in inputs:
        name, _, rest = text.partition("=")
        if rest and name.isidentifier():  # otherwise it is part of a path
            keywords[name] = read_input(rest)
        else:
            arguments.append(read_input(text))
    shapes = _dynamic_shapes(what, module, arguments, keywords, dynamic) if dynamic else None
    return Program(module, tuple(arguments), keywords, shapes)


def read_input(text: str) -> torch.Tensor:
    """Make an example tensor of `SHAPE[:DTYPE[:LOW..HIGH]]`, or read a .npy file.

    Floats are drawn from the standard normal distribution, always the same, and take no range;
    integers are drawn from LOW to HIGH, both included, by default 0 and 1. Raise UsageError if the
    text is neither form, or if its range does not fit its dtype.
    """
    if text.endswith(".npy"):
        return torch.from_numpy(read_array(text))
    match = _SHAPE.fullmatch(text)
    if match is None or (match[2] or "float32") not in set(Dtype):
        raise UsageError(text, "is not an input", _SHAPE_FORM)
    shape = () if match[1] == "scalar" else tuple(int(size) for size in match[1].split("x"))
    dtype: torch.dtype = getattr(torch, match[2] or "float32")
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        if match[3]:
            raise UsageError(text, f"{match[2]} takes no range: it is normal noise", _OTHER_VALUES)
        return torch.randn(shape, generator=generator).to(dtype)
    low, high = int(match[3] or 0), int(match[4] or 1)
    if low > high:
        raise UsageError(text, f"{low} is more than {high}", _SHAPE_FORM)
    bounds = None if dtype is torch.bool else torch.iinfo(dtype)
    lowest, highest = (0, 1) if bounds is None else (bounds.min, bounds.max)
    if low < lowest or high > highest:
        fact = f"{match[2]} holds {lowest} to {highest}"
        raise UsageError(text, fact, "Narrow the range, or take a larger dtype")
    return torch.randint(low, high + 1, shape, generator=generator).to(dtype)


def read_program(path: Path, *, unpickle: bool) -> torch.export.ExportedProgram:
    """Read a program of torch.export.save; if it was not written here, only with `unpickle`.

    Raise UsageError if there is no such file, SourceRefused if torch would unpickle parts of a file
    from elsewhere (nothing is read then), SourceError if it cannot be read.
    """
    if not path.is_file():
        raise UsageError(str(path), "there is no such file")
    # Open the bytes that were checked: the file at the path could have changed by then.
    held = path if unpickle else io.BytesIO(path.read_bytes())
    if isinstance(held, io.BytesIO) and not known(held.getbuffer()).exists():
        raise SourceRefused(
            str(path),
            "is not opened: it was not written here, and torch unpickles parts of it, which can "
            "run any code",
            "Give --unpickle if you trust its author",
        )
    try:
        with torch_unheard():
            program = torch.export.load(held)
    except Exception as error:  # torch raises many types; all mean the same to the user
        fact = f"is not an exported program: {first_line(error).partition('. Please check')[0]}"
        raise SourceError(str(path), fact, "Write it with torch.export.save") from error
    for node in reversed(program.graph.nodes):  # torch adds results of calls that nothing reads
        if node.target is operator.getitem and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()
    return program


def known(content: bytes | memoryview) -> Path:
    """Return the path of a file that exists if a program of these bytes was written here."""
    return home() / "reproducers" / hashlib.sha256(content).hexdigest()


def _holds_code(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):  # no valid archive
        return False


def _made(what: str) -> torch.nn.Module:
    name, colon, attribute = what.partition(":")
    if not colon or not all(part.isidentifier() for part in [*name.split("."), attribute]):
        raise UsageError(what, "is neither a .pt2 file nor code", _CODE)
    return build(what, {}, Context(what, Path.cwd(), allow_factories=True, advice=_CODE)).eval()


def _dynamic_shapes(
    what: str,
    module: torch.nn.Module,
    arguments: Sequence[torch.Tensor],
    keywords: Mapping[str, torch.Tensor],
    dynamic: Sequence[str],
) -> dict[str, dict[int, Any]]:
    """Return torch.export's `dynamic_shapes`, by the names of forward's parameters."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*arguments, **keywords).arguments
    except TypeError as error:
        step = f"Its forward takes {', '.join(signature.parameters)}"
        raise UsageError(what, f"does not take these inputs: {error}", step) from error
    shapes: dict[str, dict[int, Any]] = {name: {} for name in bound}
    for text in dynamic:
        match = _DYNAMIC.fullmatch(text)
        if match is None or int(match[2]) >= int(match[3]):
            raise UsageError(text, "is not a dynamic size", _DYNAMIC_FORM)
        size = None
        for place in match[1].split(","):
            name, axis = place.split(":")
            if name not in bound:
                known = f"{what} takes {', '.join(bound)}"
                raise UsageError(text, f"there is no input {name!r}", known)
            if int(axis) >= (axes := bound[name].dim()):
                raise UsageError(text, f"input {name!r} has {axes} axes", "The first is 0")
            if int(axis) in shapes[name]:
                raise UsageError(text, f"{place} is given twice", _DYNAMIC_FORM)
            size = size or torch.export.Dim(f"{name}_{axis}", min=int(match[2]), max=int(match[3]))
            shapes[name][int(axis)] = size
    return shapes
