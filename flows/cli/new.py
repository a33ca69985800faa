"""`zoo new`."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import DynamicOption, ExampleInputsOption, JsonOption
from flows.cli.output import emit, messages, results
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.entries import Sizes

__all__ = ["new"]


def new(
    what: Annotated[
        str,
        typer.Argument(
            metavar="BUILDER|PACKAGE.MODULE:CALLABLE",
            help="A builder of torchvision, or code that makes the module with its weights.",
        ),
    ],
    *,
    manifest: Annotated[
        Path,
        typer.Option("--manifest", metavar="DIR", help="Where the entry goes: DIR/NAME.yaml."),
    ] = Path(),
    name: Annotated[str, typer.Option(help="Of the model. Default: the callable's.")] = "",
    inputs: ExampleInputsOption = None,
    dynamic: DynamicOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a manifest's entry for a model by trying it: it is built, called and exported.

    The code is run, and looked for beside the entry. Licence and summary are yours to fill in.

    **Examples**

    - `zoo new resnet18 --manifest models --dynamic x:0=1..8`
    - `zoo new net:make --input x=2x80 --dynamic x:0=1..64`
    """
    called = name or re.sub(r"\W", "_", what.rpartition(":")[2]).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", called):
        raise UsageError(called, "is no name for a model", "Choose one with --name")
    file = manifest / f"{called}.yaml"
    if file.exists():
        raise UsageError(str(file), "exists", "Choose another name with --name, or edit the file")
    with messages().status(f"trying {what}"):
        from transforms.entries import entry_text, tried_entry
        from transforms.loading import read_named_input

        tensors = [read_named_input(text) for text in inputs or ()]
        entry = tried_entry(called, what, tensors, _sizes(dynamic or ()), folder=manifest)
    manifest.mkdir(parents=True, exist_ok=True)
    file.write_text(entry_text(called, entry))
    command = f"zoo convert {called} --manifest {shlex.quote(str(manifest))}"
    command += " --allow-factories" if ":" in what else " --random-weights 0"
    if as_json:
        emit({"file": str(file), "model": called, "entry": entry, "next": command})
        return
    results().print(f"{file}: written. Next: {command}", markup=False)


def _sizes(dynamic: "Sequence[str]") -> "Sizes":
    """Each place with the name of its size, after the first place that has it."""
    from transforms.loading import read_dynamic

    made: Sizes = {}
    for text in dynamic:
        places, low, high = read_dynamic(text)
        size = f"{places[0][0]}_{places[0][1]}".lower()
        for place in places:
            if place in made:
                raise UsageError(text, f"{place[0]}:{place[1]} is given twice", "Give each once")
            made[place] = (size, low, high)
    return made
