"""`zoo run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption
from flows.cli.output import emit, results, table
from zoo.errors import UsageError
from zoo.spec import Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from menagerie.format.bundle_manifest import TensorSpec

__all__ = ["run"]


def run(
    bundle: Annotated[Path, typer.Argument(metavar="DIR", help="A bundle's folder.")],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="[NAME=]FILE.npy", help="An input; once for each of them."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .npy file for one output, .npz for all."
        ),
    ] = None,
    program: Annotated[str, typer.Option(help="Which program of the model.")] = "main",
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Default: the runtime's choice.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run an artifact on numpy files, without PyTorch.

    numpy has no bfloat16: inputs of it are given as float32, outputs of it written as float32.

    **Examples**

    - `zoo run out --input x.npy --output y.npy`
    - `zoo run out -i input_features=f.npy -i attention_mask=m.npy -o all.npz`
    """
    from menagerie.session import Session

    with Session(bundle, program, threads) as session:
        arrays = _read(inputs or [], session.inputs)
        given = session.run(arrays)
        answers = {spec.name: _readable(given[spec.name], spec.dtype) for spec in session.outputs}
        dtypes = {spec.name: spec.dtype for spec in session.outputs}
    if output is not None:
        _write(answers, output)
    if as_json:
        emit({name: _described(value, dtypes[name]) for name, value in answers.items()})
    else:
        _print(answers, dtypes)


def _read(given: "Sequence[str]", wanted: "Sequence[TensorSpec]") -> "dict[str, np.ndarray]":
    """The arrays by input name; a bare path goes to the only input."""
    listing = ", ".join(f"{w.name}: {w.dtype} {[*w.shape]}".replace("'", "") for w in wanted)
    arrays = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            if len(wanted) != 1:
                raise UsageError("--input", f"{text!r} names no input", f"NAME=FILE: {listing}")
            name, path = wanted[0].name, text
        arrays[name] = _load(path)
    unknown = sorted(set(arrays) - {w.name for w in wanted})
    if unknown:
        raise UsageError("--input", f"there is no {unknown[0]!r}", f"The program takes {listing}")
    missing = [w.name for w in wanted if w.name not in arrays]
    if missing:
        raise UsageError("--input", f"{missing[0]!r} is missing", f"The program takes {listing}")
    return {w.name: _taken(arrays[w.name], w.dtype) for w in wanted}


def _taken(array: "np.ndarray", dtype: Dtype) -> "np.ndarray":
    """A float32 array in bfloat16, where that is wanted; any other unchanged."""
    from menagerie.validation.elements import narrow

    return narrow(array, dtype) if dtype is Dtype.BFLOAT16 and array.dtype == "float32" else array


def _readable(array: "np.ndarray", dtype: Dtype) -> "np.ndarray":
    """An output of a type that numpy has; bfloat16 as the float32 that it is a part of."""
    from menagerie.validation.elements import widen

    return widen(array, dtype).astype("float32") if dtype is Dtype.BFLOAT16 else array


def _load(path: str) -> "np.ndarray":
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(path, f"cannot be read as .npy: {reason}") from error
    if not isinstance(loaded, np.ndarray):
        raise UsageError(path, "holds several arrays", "Give a .npy file for each input")
    return loaded


def _write(answers: "Mapping[str, np.ndarray]", path: Path) -> None:
    import numpy as np

    if path.suffix == ".npz":
        np.savez(path, **dict(answers))  # type: ignore[arg-type]
    elif len(answers) == 1:
        np.save(path, next(iter(answers.values())), allow_pickle=False)
    else:
        names = ", ".join(answers)
        raise UsageError(str(path), f"there are several outputs ({names})", "Name a .npz file")


def _described(value: "np.ndarray", dtype: Dtype) -> dict[str, object]:
    return {"dtype": dtype.value, "shape": list(value.shape), "values": value.tolist()}


def _print(answers: "Mapping[str, np.ndarray]", dtypes: "Mapping[str, Dtype]") -> None:
    shown = table("output", "dtype", "shape", "smallest", "largest", right=("smallest", "largest"))
    for name, value in answers.items():
        ends = (f"{value.min():.6g}", f"{value.max():.6g}") if value.size else ("", "")
        shown.add_row(name, dtypes[name].value, str([*value.shape]), *ends)
    results().print(shown)
