"""The catalogue's pages: a searchable list, and one page per model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from menagerie.figures import shown_address
from menagerie.format.bundle_manifest import BundleProgram, TensorSpec
from menagerie.numerics import Dtype
from menagerie.store import HUB
from zoo.base_models import Frozen
from zoo.catalogue.collect import CataloguedModel, History, side_by_side
from zoo.errors import UsageError
from zoo.report.page import TEMPLATES, render
from zoo.report.summary import Command

CATALOGUE: Final = "catalogue/"
ROOT: Final = f"{CATALOGUE}root.json"
MODEL_SIGNING_KEY: Final = f"{CATALOGUE}model-signing.pub"
WHEELS: Final = f"{CATALOGUE}wheels/"


_WHEEL = r"^[A-Za-z0-9_][A-Za-z0-9._+!-]*\.whl$"  # a file's name, not a path


class Site(Frozen):
    """The owner's settings of the store's site.

    Attributes:
        address: where a web server publishes the store; None without one.
        wheels: file names of the small package under `WHEELS`, one per platform.
    """

    address: str | None = None
    wheels: tuple[Annotated[str, Field(pattern=_WHEEL)], ...] = Field(default=())

    def at(self, address: str) -> Site:
        """Return the site at `address`, or at none if empty; UsageError if it is no web address."""
        parts = urlsplit(address)
        web = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
        if address and (not web or parts.query or parts.fragment):
            advice = "Give the address at which a web server shows it: https://models.example/zoo"
            raise UsageError(shown_address(address), "is not the address of a site", advice)
        return self.model_copy(update={"address": address.rstrip("/") or None})

    def with_wheel(self, name: str) -> Site:
        """Return the site with this wheel, replacing an earlier one for the same platform."""
        others = [each for each in self.wheels if _platform_tag(each) != _platform_tag(name)]
        return self.model_copy(update={"wheels": tuple(sorted([*others, name]))})

    def wheel_for(self, platform: str) -> str | None:
        """Return the wheel for a release's platform, e.g. `cpu-linux-x86_64`."""
        _, system, machine = platform.split("-", 2)
        known = {"linux": "linux", "macos": "macosx"}.get(system, system)
        machines = (machine, "aarch64") if machine == "arm64" else (machine, "universal2")
        tags = {name: _platform_tag(name) for name in self.wheels}
        return next((n for n, t in tags.items() if known in t and t.endswith(machines)), None)


def _platform_tag(wheel: str) -> str:
    return wheel.removesuffix(".whl").rpartition("-")[2]


@dataclass(frozen=True)
class Way:
    """Addresses as the readers of one page need them.

    Attributes:
        site: the owner's settings.
        store: the store's name in commands.
        link: returns a key's link on the page; its second argument is the name for saving.
        whole: returns a key's absolute address for commands; None if it has none.
        archives: addresses of zip files by model and platform, for readers without a store key.
    """

    site: Site
    store: str
    link: Callable[..., str]
    whole: Callable[[str], str | None]
    archives: Mapping[tuple[str, str], str] = field(default_factory=dict)


def render_catalogue(models: Sequence[CataloguedModel], way: Way) -> str:
    """Render the page that lists the latest release of every model for every platform."""
    rows = [
        (model, history)
        for model in sorted(models, key=lambda model: model.name)
        for history in model.histories
        if history.current is not None
    ]
    return render(
        "catalogue.html.j2",
        script=_script("search.js", "copy.js"),
        way=way,
        first_lines=first_lines(rows, way),
        rows=rows,
        models=len({model.name for model, _ in rows}),
        targets=sorted({history.target for _, history in rows}),
        licences=sorted({model.licence for model, _ in rows}),
    )


def _script(*names: str) -> str:
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def render_model(name: str, known: Mapping[str, CataloguedModel], way: Way) -> str:
    """Render the page of a model, which may be a variant of another model of `known`.

    `way` has the addresses of other pages, of files and of the store.
    """
    model = known[name]
    platforms = [(history, snippets(model, history, way)) for history in model.histories]
    sides = side_by_side(name, known)
    return render(
        "model.html.j2",
        script=_script("copy.js"),
        way=way,
        first_lines=first_lines([(model, h) for h in model.histories if h.current], way),
        model=model,
        platforms=platforms,
        sides=sides,
    )


def first_lines(latest: Sequence[tuple[CataloguedModel, History]], way: Way) -> str:
    """Return a newcomer's commands for installing and running one of these releases.

    A release with a wheel is preferred. The result is empty without releases.
    """
    for model, history in sorted(latest, key=lambda e: way.site.wheel_for(e[1].platform) is None):
        wheel = way.site.wheel_for(history.platform)
        package, root = wheel and way.whole(WHEELS + wheel), way.whole(ROOT)
        places = {"pip install": package, "menagerie trust": root}
        commands = [f"{verb} {shlex.quote(place)}" for verb, place in places.items() if place]
        return "\n".join([*commands, pull_command(model, history, way)])
    return ""


def snippets(model: CataloguedModel, history: History, way: Way) -> tuple[Command, ...]:
    """Return commands and Python code for the latest release of a platform."""
    pull = pull_command(model, history, way)
    heard = Command("Make text of a recording", f"menagerie transcribe {model.name} a.wav")
    run = "The same in Python" if model.speech else "Run it in Python, without PyTorch"
    zipped = (model.name, history.platform) in way.archives
    alone = history.platform == "cpu-linux-x86_64" and not zipped and not model.speech  # loops
    command = f"{pull}-alone --standalone && {model.name}-alone/menagerie-run --bench 20"
    by_itself = Command("Without Python: a folder that proves and measures itself", command)
    return (
        Command("Download and check it", pull),
        *([heard] if model.speech else []),
        Command("Prove it on your machine", f"menagerie verify {model.name}"),
        Command(run, _python(model, history)),
        *([by_itself] if alone else []),
    )


def pull_command(model: CataloguedModel, history: History, way: Way) -> str:
    """Return the command that downloads the latest release of a platform."""
    if archive := way.archives.get((model.name, history.platform)):
        place, file = shlex.quote(archive), f"{model.name}.zip"
        return f"curl -fo {file} {place} && python3 -m zipfile -e {file} {model.name}"
    place = shlex.quote(way.store)
    which, where = (place, "") if way.store.startswith(HUB) else (model.name, f" --store {place}")
    return f"menagerie pull {which} --target {history.target}{where} -o {model.name}"


def _python(model: CataloguedModel, history: History) -> str:
    if model.speech:
        return (
            "from menagerie.speech import Transcriber\n\n"
            f'with Transcriber("{model.name}") as transcriber:\n'
            '    print(transcriber.transcribe_file("a.wav").text)\n'
        )
    if (program := history.program) is None:
        return ""
    named = "" if program.name == "main" else f', program="{program.name}"'
    given = ",\n".join(
        f"        {json.dumps(each.name)}: {_zeros(each, program)}" for each in program.inputs
    )
    return (
        "import menagerie\n"
        "import numpy as np\n\n"
        f'with menagerie.Session("{model.name}"{named}) as session:\n'
        f"    print(session.run({{\n{given},\n    }}))\n"
    )


def _zeros(tensor: TensorSpec, program: BundleProgram) -> str:
    """Return code for an array of zeros with each dimension at its lowest size."""
    shape = tuple(program.dimensions[a][0] if isinstance(a, str) else a for a in tensor.shape)
    dtype = "uint16" if tensor.dtype is Dtype.BFLOAT16 else tensor.dtype  # bits: numpy lacks it
    return f'np.zeros({shape}, "{dtype}")'
