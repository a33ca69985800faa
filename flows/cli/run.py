"""`zoo run`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption, UnsignedOption
from flows.cli.output import emit, results, table
from menagerie.numerics import Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


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
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    as_json: JsonOption = False,
) -> None:
    """Run an artifact on numpy files, without PyTorch.

    numpy has no bfloat16: inputs of it are given as float32, outputs of it written as float32.

    **Examples**

    - `zoo run out --input x.npy --output y.npy`
    - `zoo run out -i input_features=f.npy -i attention_mask=m.npy -o all.npz`
    """
    from menagerie.session import Session
    from menagerie.tensor_files import read_inputs, readable, write_outputs

    with Session(bundle, program, threads) as session:
        arrays = read_inputs(inputs or [], session.inputs)
        given = session.run(arrays)
        answers = {spec.name: readable(given[spec.name], spec.dtype) for spec in session.outputs}
        dtypes = {spec.name: spec.dtype for spec in session.outputs}
    if output is not None:
        write_outputs(answers, output)
    if as_json:
        emit({name: _described(value, dtypes[name]) for name, value in answers.items()})
    else:
        _print(answers, dtypes)


def _described(value: "np.ndarray", dtype: Dtype) -> dict[str, object]:
    return {"dtype": dtype.value, "shape": list(value.shape), "values": value.tolist()}


def _print(answers: "Mapping[str, np.ndarray]", dtypes: "Mapping[str, Dtype]") -> None:
    shown = table("output", "dtype", "shape", "smallest", "largest", right=("smallest", "largest"))
    for name, value in answers.items():
        ends = (f"{value.min():.6g}", f"{value.max():.6g}") if value.size else ("", "")
        shown.add_row(name, dtypes[name].value, str([*value.shape]), *ends)
    results().print(shown)
