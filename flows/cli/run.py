"""`zoo run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption
from flows.cli.output import emit, results, table
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from zoo.artifact.manifest import TensorSpec

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

    **Examples**

    - `zoo run out --input x.npy --output y.npy`
    - `zoo run out -i input_features=f.npy -i attention_mask=m.npy -o all.npz`
    """
    from runtime.session import Session

    with Session(bundle, program, threads) as session:
        arrays = _read(inputs or [], session.inputs)
        answers = session.run(arrays)
    if output is not None:
        _write(answers, output)
    if as_json:
        emit({name: _described(value) for name, value in answers.items()})
    else:
        _print(answers)


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
    return arrays


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


def _described(value: "np.ndarray") -> dict[str, object]:
    return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.tolist()}


def _print(answers: "Mapping[str, np.ndarray]") -> None:
    shown = table("output", "dtype", "shape", "smallest", "largest", right=("smallest", "largest"))
    for name, value in answers.items():
        ends = (f"{value.min():.6g}", f"{value.max():.6g}") if value.size else ("", "")
        shown.add_row(name, str(value.dtype), str([*value.shape]), *ends)
    results().print(shown)
