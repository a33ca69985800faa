"""`zoo list`."""

from typing import Annotated

import typer

from flows.cli.options import JsonOption, ManifestOption
from flows.cli.output import emit, results, table

__all__ = ["list_models"]


def list_models(
    *,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only with this tag.")] = None,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the models of the manifest.

    **Examples**

    - `zoo list`
    - `zoo list --tag speech`
    - `zoo list --json | jq '.[].name'`
    """
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest

    wanted = set(tag or ())
    models = {
        name: spec
        for name, spec in load_manifest(manifest, targets=all_targets()).models.items()
        if not wanted or wanted & set(spec.tags)
    }
    if as_json:
        emit(
            [
                {
                    "name": name,
                    "summary": spec.summary,
                    "source": spec.source.kind,
                    "programs": [program.name for program in spec.programs],
                    "dtype": spec.dtype.value,
                    "precision": spec.precision.value,
                    "targets": list(spec.targets),
                    "licence": spec.licence.spdx,
                    "tags": list(spec.tags),
                }
                for name, spec in models.items()
            ]
        )
        return
    shown = table("model", "source", "targets", "tags", "summary")
    for name, spec in models.items():
        targets = ", ".join(spec.targets)
        shown.add_row(name, spec.source.kind, targets, ", ".join(spec.tags), spec.summary)
    results().print(shown)
