"""`zoo show`."""

from typing import TYPE_CHECKING

from flows.cli.options import JsonOption, ManifestOption, ModelArgument, StoreOption, store_url
from flows.cli.output import emit, results, table
from menagerie.figures import size

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.manifest import Manifest, Origin
    from zoo.spec import ModelSpec
    from zoo.store import Release, Store

__all__ = ["show"]


def show(
    model: ModelArgument,
    *,
    store: StoreOption = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a model's manifest entry and its releases in the store.

    **Examples**

    - `zoo show resnet18`
    - `zoo show resnet18 --json`
    """
    from zoo.store import open_store

    opened = open_store(store_url(store))
    entries = _entries(opened, model, manifest)
    spec, origin = entries.spec(model), entries.origin(model)
    releases = opened.releases(model)
    if as_json:
        emit(
            {
                "name": model,
                "file": str(origin.file),
                "line": origin.line,
                "entry": spec.model_dump(mode="json"),
                "releases": [_release(release) for release in releases],
            }
        )
        return
    _print_entry(model, spec, origin)
    _print_releases(model, releases)


def _entries(store: "Store", model: str, folder: "Path | None") -> "Manifest":
    """The manifest that is meant; of what is none of Menagerie's own, what was submitted."""
    from flows.parameters import fetched, submission_meant
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest

    entries = load_manifest(folder, targets=all_targets())
    digest = None if folder else submission_meant(store, [model], entries.models)
    if digest is None:
        return entries
    return load_manifest(fetched(store, digest), targets=all_targets())


def _release(release: "Release") -> dict[str, object]:
    return {
        "target": release.target,
        "build_key": release.build_key,
        "state": release.manifest.state.value,
        "created": release.manifest.created,
        "random_weights": release.manifest.random_weights,
        "bytes": release.size,
    }


def _print_entry(model: str, spec: "ModelSpec", origin: "Origin") -> None:
    console = results()
    console.print(f"[bold]{model}[/bold]  {spec.summary}")
    source = spec.source.model_dump(mode="json", exclude_defaults=True)
    console.print("  source   " + ", ".join(f"{k} {v}" for k, v in source.items()), markup=False)
    for program in spec.programs:
        inputs = ", ".join(
            f"{i.name}: {i.dtype} {[*i.shape]}".replace("'", "") for i in program.inputs
        )
        console.print(f"  program  {program.name}({inputs})", markup=False)
        for name, dimension in program.dimensions.items():
            console.print(f"           {name} from {dimension.low} to {dimension.high}")
    console.print(f"  targets  {', '.join(spec.targets)}")
    console.print(f"  licence  {spec.licence.spdx} {spec.licence.url}", markup=False)
    console.print(f"  entry    {origin.file}:{origin.line}", markup=False)


def _print_releases(model: str, releases: "list[Release]") -> None:
    if not releases:
        results().print(f"  not in the store yet: zoo convert {model}")
        return
    shown = table("target", "state", "created", "weights", "size", "build key", right=("size",))
    for release in releases:
        seed = release.manifest.random_weights
        shown.add_row(
            release.target,
            release.manifest.state,
            release.manifest.created,
            "real" if seed is None else f"random, seed {seed}",
            size(release.size),
            release.build_key[:12],
        )
    results().print(shown)
