"""Commands and code with which a visitor of the catalogue gets and runs a model."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.catalogue.native_code import c_code, swift_code

if TYPE_CHECKING:
    from zoo.catalogue.records import CataloguedModel, History, Tensor

__all__ = ["Snippet", "pull_command", "snippets"]


@dataclass(frozen=True)
class Snippet:
    """Something to copy, and what it is for."""

    purpose: str
    text: str


def snippets(model: CataloguedModel, history: History, store: str) -> tuple[Snippet, ...]:
    """For the latest release of a platform: the command line's, then code.

    Args:
        model: whose.
        history: of the platform.
        store: the address at which a visitor reaches the store.
    """
    pull = pull_command(model, history, store)
    found = [Snippet("Download and check it", pull)]
    if model.speech:
        found.append(
            Snippet("Make text of a recording", f"menagerie transcribe {model.name} a.wav")
        )
    found.append(Snippet("Prove it on your machine", f"menagerie verify {model.name}"))
    found.append(
        Snippet(
            "The same in Python" if model.speech else "Run it in Python, without PyTorch",
            _python(model, history),
        )
    )
    return (*found, *_native(model, history, pull))


def pull_command(model: CataloguedModel, history: History, store: str) -> str:
    """The command that gets the latest release of a platform."""
    place = shlex.quote(store)
    return f"menagerie pull {model.name} --target {history.target} --store {place} -o {model.name}"


def _native(model: CataloguedModel, history: History, pull: str) -> tuple[Snippet, ...]:
    """Without Python: a folder that runs by itself and C for it, on a Mac Swift."""
    if not history.inputs or model.speech:  # a recogniser is several programs and a loop
        return ()
    if history.platform == "cpu-linux-x86_64":
        return (
            Snippet(
                "Without Python: a folder that proves and measures itself",
                f"{pull}-alone --standalone && {model.name}-alone/menagerie-run --bench 20",
            ),
            Snippet("From C, in that folder", c_code(history)),
        )
    if "-macos-" in history.platform:
        return (Snippet("From Swift", swift_code(model, history)),)
    return ()


def _python(model: CataloguedModel, history: History) -> str:
    if model.speech:
        return (
            "from menagerie.speech import Transcriber\n\n"
            f'with Transcriber("{model.name}") as transcriber:\n'
            '    print(transcriber.transcribe_file("a.wav").text)\n'
        )
    program = "" if history.program == "main" else f', program="{history.program}"'
    given = ",\n".join(
        f"        {json.dumps(each.name)}: {_zeros(each)}" for each in history.inputs
    )
    return (
        "import menagerie\n"
        "import numpy as np\n\n"
        f'with menagerie.Session("{model.name}"{program}) as session:\n'
        f"    outputs = session.run({{\n{given},\n    }})\n"
    )


def _zeros(tensor: Tensor) -> str:
    dtype = "uint16" if tensor.dtype == "bfloat16" else tensor.dtype  # its bits; numpy has none
    return f'np.zeros({tensor.least}, "{dtype}")'
