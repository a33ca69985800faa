"""`zoo transcribe`."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.bundles import bundle_at
from flows.cli.options import (
    JsonOption,
    StoreOption,
    UnsignedOption,
    complete_models,
    complete_targets,
    known_target,
    store_url,
)

__all__ = ["transcribe"]


def transcribe(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="DIR|MODEL",
            help="A bundle's folder or zip file, or the name of a published model.",
            autocompletion=complete_models,
        ),
    ],
    audio: Annotated[
        list[str],
        typer.Argument(
            metavar="AUDIO...",
            help="WAV, FLAC, Ogg or MP3; `-` for raw 16-bit samples on standard input.",
        ),
    ],
    *,
    form: Annotated[str, typer.Option("--format", "-f", help="txt, srt, vtt or json.")] = "txt",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write a file for each recording here."),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Which of the model's decoders. Default: its first.")
    ] = None,
    rate: Annotated[int, typer.Option(metavar="HZ", help="Of raw samples.")] = 16_000,
    chunk: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How much to hear at once. Default: the most."),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="That is spoken, e.g. `en`. Default: as heard."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Of a published model. Default: cpu.",
            callback=known_target,
            autocompletion=complete_targets,
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Default: one a processor.")
    ] = None,
    allow_unsigned: UnsignedOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write down what recordings say, without PyTorch.

    **Examples**

    - `zoo transcribe spoken_digits recording.wav`
    - `zoo transcribe spoken_digits *.flac --format srt --output captions`
    - `arecord -f S16_LE -r 16000 -t raw | zoo transcribe spoken_digits - --chunk 5`
    """
    from menagerie.speech import Transcriber
    from menagerie.speech.command import Order
    from menagerie.speech.command import transcribe as carry_out

    order = Order(tuple(audio), "json" if as_json else form, output, rate)
    with (
        bundle_at(bundle, target or "cpu", store_url(store)) as folder,
        Transcriber(
            folder,
            head=head,
            threads=threads,
            chunk=chunk,
            language=language,
            allow_unsigned=allow_unsigned or None,
        ) as transcriber,
    ):
        code = carry_out(transcriber, order)
    raise typer.Exit(code)
