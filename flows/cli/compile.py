"""`zoo compile`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from flows.cli.options import DynamicOption, ExampleInputsOption, TargetOption, ThreadsOption
from flows.cli.output import answer, figure, messages
from menagerie.figures import decibels, error, size


def compile_model(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.pt2|PACKAGE.MODULE:CALLABLE",
            help="A file of torch.export.save, or code that makes the module.",
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The bundle's folder, to be made.")
    ],
    target: TargetOption = "cpu",
    inputs: ExampleInputsOption = None,
    dynamic: DynamicOption = None,
    unpickle: Annotated[
        bool,
        typer.Option(
            "--unpickle",
            help="Open a .pt2 file, of which torch unpickles parts: code in it would run.",
        ),
    ] = False,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass", metavar="PASS", help="A graph pass to run, in order. Default: the target's."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Largest error of float32 outputs. Default: 1e-4, or 80 dB."),
    ] = None,
    name: Annotated[str, typer.Option(help="The model's name. Default: its class's.")] = "",
    licence: Annotated[str, typer.Option(help="The weights' licence, by SPDX.")] = "",
    threads: ThreadsOption = 1,
    search_minutes: Annotated[
        float, typer.Option(min=0, help="Longest search for the wrong node of a failed proof.")
    ] = 0.0,
) -> None:
    """Convert any module to a proven bundle, without manifest or server.

    The folder appears when the artifact agreed with eager on the inputs and, for dynamic sizes, at
    their lowest, highest and odd values. `PACKAGE.MODULE:CALLABLE` is imported and called.

    **Examples**

    - `zoo compile torchvision.models:resnet18 -i 1x3x224x224 -o out`
    - `zoo compile net:make -i x=2x80 -i mask=2x80:bool --dynamic x:0,mask:0=1..64 -t metal -o out`
    - `zoo compile model.pt2 --unpickle -o out --json`
    """
    doing = f"converting {what} for {target}"
    with messages().status(doing) as shown:
        from transforms import convert
        from transforms.loading import load_program

        program = load_program(what, inputs or [], dynamic or [], unpickle=unpickle)
        bundle = convert(
            {"main": program},
            target=target,
            out=output,
            passes=passes,
            tolerances=None if tolerance is None else {"float32": tolerance},
            model=name,
            licence=licence,
            threads=threads,
            search_seconds=search_minutes * 60,
            progress=lambda text: shown.update(escape(f"{doing}: {text}")),
        )
    manifest, report = bundle.manifest, bundle.report
    worst = f"{figure(report.worst_abs, error)}, {figure(report.worst_snr_db, decibels)}"
    made = f"{manifest.state} for {manifest.target}, {size(manifest.size)}"
    fields = {
        "path": str(bundle.folder),
        "model": manifest.model,
        "target": manifest.target,
        "state": manifest.state.value,
        "worst_abs": report.worst_abs,
        "worst_snr_db": report.worst_snr_db,
        "doubts": report.validation.doubts,
        "bytes": manifest.size,
        "dimensions": {p.name: p.dimensions for p in manifest.programs},
    }
    sizes = "".join(f"; {span}" for span in bundle.sizes)
    doubts = "".join(f"\n{doubt}" for doubt in report.validation.doubts)
    answer(fields, f"{output}: {made}; worst against eager {worst}{sizes}{doubts}")
