"""Options and arguments that several commands share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo.spec import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.cluster import Connection

__all__ = [
    "FactoriesOption",
    "JsonOption",
    "ManifestOption",
    "ModelArgument",
    "SeedOption",
    "StoreOption",
    "TargetOption",
    "absolute",
    "complete_models",
    "store_url",
    "use_cluster",
]


def complete_models(incomplete: str) -> list[str]:
    """Names of models for the shell's completion; silent whatever is wrong."""
    from zoo.errors import MenagerieError
    from zoo.manifest import load_manifest

    try:
        return [name for name in load_manifest().models if name.startswith(incomplete)]
    except MenagerieError:
        return []


ModelArgument = Annotated[
    str, typer.Argument(help="Name of a model.", autocompletion=complete_models)
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Machine-readable result on standard output.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="MENAGERIE_STORE",
        metavar="URL",
        help="Folder, file:// or s3://bucket/prefix. Default: a folder under Menagerie's own.",
    ),
]
ManifestOption = Annotated[
    Path | None,
    typer.Option(
        "--manifest", metavar="DIR", help="Folder of manifest files. Default: Menagerie's models."
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        metavar="SEED", min=0, max=2**32 - 1, help="Seeded random weights instead of fetching."
    ),
]
FactoriesOption = Annotated[
    bool, typer.Option("--allow-factories", help="Run code that the manifest names.")
]
TargetOption = Annotated[Target, typer.Option("--target", "-t", help="Where the artifact runs.")]


def store_url(given: str | None) -> str:
    """The store that is meant, a folder as an absolute path; by default a running cluster's."""
    from flows.request.parameters import default_store

    if given:
        return absolute(given)
    use_cluster(lambda found: found.store_environment())
    return default_store()


def use_cluster(wanted: "Callable[[Connection], dict[str, str]]") -> None:
    """Put what is `wanted` of a cluster that `zoo up` started into this process's environment.

    Variables that are set already stay as they are.
    """
    from flows.cluster import connection

    if (found := connection()) is not None:
        for name, value in wanted(found).items():
            os.environ.setdefault(name, value)


def absolute(location: str) -> str:
    """A path as seen from anywhere; URLs are left as they are."""
    return location if "://" in location else str(Path(location).expanduser().resolve())
