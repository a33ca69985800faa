"""Options and arguments that several commands share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from flows.connection import ClusterState

DEFAULT_STORE = "$MENAGERIE_STORE, that of `zoo cluster up`, or a folder under Menagerie's own"
_OF_A_STORE = ("MENAGERIE_STORE", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def complete_models(incomplete: str) -> list[str]:
    """Return names of models for the shell's completion; none after an error."""
    from zoo.errors import MenagerieError
    from zoo.manifest import load_manifest

    try:
        return [name for name in load_manifest().models if name.startswith(incomplete)]
    except MenagerieError:
        return []


def complete_targets(incomplete: str) -> list[str]:
    """Return names of targets for the shell's completion."""
    from transforms.targets import all_targets

    return [name for name in all_targets() if name.startswith(incomplete)]


def known_target(name: str) -> str:
    """Return the name of a target; raise UsageError if it is unknown."""
    from transforms.targets import target_named

    return target_named(name).name


ModelArgument = Annotated[
    str, typer.Argument(help="Name of a model.", autocompletion=complete_models)
]
ExampleInputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]1x3x8[:DTYPE[:LOW..HIGH]]|FILE.npy",
        help="An example input, in forward's order or by name; once for each.",
    ),
]
DynamicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dynamic",
        metavar="NAME:AXIS=LOW..HIGH",
        help="A size that may change; `x:0,y:0=1..64` where two are always equal.",
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


TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="A target, cpu or metal; once for each.",
        callback=lambda names: names and [known_target(name) for name in names],
        autocompletion=complete_targets,
    ),
]
ThreadsOption = Annotated[int, typer.Option(min=1, max=256, help="Threads of a run that is timed.")]
BuildOption = Annotated[
    str | None, typer.Option("--build", metavar="KEY", help="A build's key. Default: the latest.")
]
PlatformOption = Annotated[
    str | None, typer.Option(help="The release's, e.g. metal-macos-arm64. Default: the only one.")
]
ReasonOption = Annotated[str, typer.Option(help="The reason, which the ledger records.")]


def store_url(given: str | None) -> str:
    """Return the chosen store, with a folder as an absolute path; default: a running cluster's."""
    from flows.connection import STORE
    from flows.parameters import default_store

    place = absolute(given)
    if place in {"", STORE}:  # the cluster's store by its address, as on a run's page
        use_cluster(lambda found: found.store_environment())
    return place or default_store()


def use_cluster(wanted: "Callable[[ClusterState], dict[str, str]]") -> "ClusterState | None":
    """Put variables of the running local cluster into this process's environment.

    Variables of Prefect that are already set stay. Those of a store belong together: if its address
    or server is set to something else, none of the cluster's is added, otherwise all are, so that
    no store is accessed with the keys of another.
    """
    from flows.connection import started_cluster

    if (found := started_cluster()) is None:
        return None
    values = wanted(found)
    of_store = {name: values.pop(name) for name in found.store_environment() if name in values}
    for name, value in values.items():
        os.environ.setdefault(name, value)
    theirs = {name: os.environ[name] for name in _OF_A_STORE if name in os.environ}
    if theirs.items() <= of_store.items():
        os.environ.update(of_store)
    return found


def absolute(location: Path | str | None) -> str:
    """Return a path as absolute; URLs, names of submissions and empty text stay unchanged."""
    text = str(location or "")
    if not text or "://" in text or text.startswith("sha256:"):
        return text
    return str(Path(text).expanduser().resolve())


def store_option(callback: "Callable[[str], str] | None" = None) -> Any:
    """Return the option `--store`, with its value converted by `callback` if there is one."""
    return typer.Option(
        "--store",
        envvar="MENAGERIE_STORE",
        metavar="URL",
        help=f"Folder, file:// or s3://bucket/prefix. Default: {DEFAULT_STORE}.",
        callback=callback,
        show_envvar=False,
    )


StoreOption = Annotated[str, store_option(store_url)]  # a command gets the store's address


def _allow_unsigned(*, given: bool) -> bool:
    """Allow unsigned bundles in this process and its children, and print a warning."""
    if given:
        from flows.cli.output import messages
        from menagerie.trust.roots import ALLOW_UNSIGNED, WARNING

        os.environ[ALLOW_UNSIGNED] = "1"
        messages().print(WARNING, style="yellow")
    return given


UnsignedOption = Annotated[
    bool,
    typer.Option(
        "--allow-unsigned",
        callback=lambda value: _allow_unsigned(given=value),
        help="Take what no trusted key has signed: native code of unproven origin.",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="Where the artifact runs: cpu, metal.",
        callback=known_target,
        autocompletion=complete_targets,
    ),
]
