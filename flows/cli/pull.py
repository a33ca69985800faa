"""`zoo pull`."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    JsonOption,
    StoreOption,
    TargetOption,
    UnsignedOption,
    complete_models,
    store_url,
)
from flows.cli.output import emit, results
from flows.cli.transfer import transfer
from zoo.errors import UsageError

if TYPE_CHECKING:
    from menagerie.store import Release, ReleaseReader
    from menagerie.store.base import Progress

__all__ = ["pull"]


def pull(
    model: Annotated[
        str, typer.Argument(help="Name of a published model.", autocompletion=complete_models)
    ],
    *,
    target: TargetOption = "cpu",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PLACE", help="Folder or zip file to make."),
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(
            "--build", metavar="KEY", help="Not the latest, but this build, or its beginning."
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            help="For another machine, e.g. cpu-linux-arm64. Default: what this one can run."
        ),
    ] = None,
    as_zip: Annotated[
        bool, typer.Option("--zip", help="One zip file instead of a folder.")
    ] = False,
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone",
            help="With the runtime and menagerie-run: for any Linux with glibc 2.28, no Python.",
        ),
    ] = False,
    runtime: Annotated[
        Path | None,
        typer.Option(metavar="WHEEL", help="For --standalone. Default: what is installed here."),
    ] = None,
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a released artifact; every file's sha256 is checked before anything appears.

    **Examples**

    - `zoo pull resnet18 -o out`
    - `zoo pull resnet18 --zip -o resnet18.zip`
    - `zoo pull resnet18 --standalone --runtime dist/menagerie-*.whl -o alone`
    - `zoo pull resnet18 --platform cpu-linux-arm64`
    - `zoo pull resnet18 --store s3://models/zoo`
    - `zoo pull resnet18 --store https://models.example/zoo`
    """
    from menagerie.store import open_releases
    from menagerie.store.pull import BlobCache

    if as_zip and standalone:
        fact = "--zip and --standalone exclude each other"
        raise UsageError("zoo pull", fact, "Pull a folder and pack it")
    opened, cache = open_releases(store_url(store)), BlobCache.of_this_user()
    release = opened.find(model, target, build, platform=platform)
    place = output or Path(f"{model}-{target}" + (".zip" if as_zip else ""))
    with transfer(f"{model} for {target}") as progress:
        if as_zip:
            _pull_zip(opened, release, place, progress)
        elif standalone:
            from menagerie.standalone import make_standalone

            make_standalone(
                place, lambda at: opened.pull(release, at, progress, cache=cache), runtime
            )
        else:
            opened.pull(release, place, progress, cache=cache)
    line, facts = release.pulled_to(place)
    if as_json:
        emit(facts)
    else:
        results().print(line)


def _pull_zip(
    store: "ReleaseReader", release: "Release", place: Path, progress: "Progress"
) -> None:
    from menagerie.format.archive import pack

    if place.exists() or place.is_symlink():
        raise UsageError(str(place), "exists", "Remove it or choose another place")
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside the goal, not in the system's temporary folder: that one may be small.
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=place.parent) as folder:
        pack(store.pull(release, Path(folder) / "bundle", progress), place)
