"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from zoo.spec import Target

__all__ = [
    "FactoriesOption",
    "JsonOption",
    "ManifestOption",
    "SeedOption",
    "StoreOption",
    "TargetOption",
    "absolute",
    "complete_models",
    "store_url",
]


def complete_models(incomplete: str) -> list[str]:
    """Names of models for the shell's completion; silent whatever is wrong."""
    from zoo.errors import MenagerieError
    from zoo.manifest import load_manifest

    try:
        return [name for name in load_manifest().models if name.startswith(incomplete)]
    except MenagerieError:
        return []


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
    """The store that is meant, a folder as an absolute path."""
    from flows.parameters import default_store

    return absolute(given) if given else default_store()


def absolute(location: str) -> str:
    """A path as seen from anywhere; URLs are left as they are."""
    return location if "://" in location else str(Path(location).expanduser().resolve())
