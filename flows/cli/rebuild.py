"""`zoo rebuild`."""

import os
from typing import Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    JsonOption,
    ManifestOption,
    StoreOption,
    TargetOption,
    absolute,
    complete_models,
    store_url,
)
from flows.cli.output import emit, messages, results, table

__all__ = ["rebuild"]


def rebuild(
    model: Annotated[str, typer.Argument(help="Name of a model.", autocompletion=complete_models)],
    *,
    target: TargetOption = "cpu",
    build: Annotated[
        str | None, typer.Option("--build", metavar="KEY", help="Not the latest, but this build.")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="Of another machine, e.g. metal-macos-arm64.")
    ] = None,
    manifest: ManifestOption = None,
    allow_factories: FactoriesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a release again and compare it with what is published, byte for byte.

    All files and the manifest are compared, but for the report, which speaks of its own run, and
    the dates. Nothing is published. It takes the code, versions and compiler that the release was
    made with; see `zoo provenance`.

    **Examples**

    - `zoo rebuild resnet18`
    - `zoo rebuild resnet18 --target metal --json`
    """
    from flows import proofs
    from flows.parameters import ConversionOptions
    from flows.services import services
    from tasks.rebuild import RebuildOutcome
    from zoo.store import open_store

    if allow_factories:  # whoever types it is the operator of this machine
        os.environ["MENAGERIE_ALLOW_FACTORIES"] = "1"
    place = store_url(store)
    release = open_store(place).find(model, target, build, platform=platform)
    options = ConversionOptions(
        store=place,
        manifest="" if manifest is None else absolute(str(manifest)),
        allow_factories=allow_factories,
    )
    with messages().status(f"converting {model} for {release.platform} again"):
        found = proofs.rebuild(release, options, services().hold)
    if as_json:
        emit(found.model_dump(mode="json"))
    elif found.outcome is RebuildOutcome.IDENTICAL:
        from menagerie.figures import size

        results().print(
            f"identical: {found.files} files, {size(found.bytes)}, but for the report and the dates"
        )
    elif found.differences:
        shown = table("file", "difference")
        for each in found.differences:
            shown.add_row(each.place, each.fact)
        results().print(shown)
        results().print(found.outcome.value)
    else:
        results().print(f"{found.outcome}: {found.detail}", markup=False)
    if not found.succeeded:
        raise typer.Exit(1)
