"""`zoo provenance`."""

from typing import Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, TargetOption, complete_models, store_url
from flows.cli.output import emit, results, table

__all__ = ["provenance"]


def provenance(
    model: Annotated[str, typer.Argument(help="Name of a model.", autocompletion=complete_models)],
    *,
    target: TargetOption = "cpu",
    build: Annotated[
        str | None, typer.Option("--build", metavar="KEY", help="Not the latest, but this build.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check and show where a release comes from: source, versions, passes, builder, digests.

    It is an in-toto statement with the SLSA provenance predicate, signed by the promoter. What was
    linked is read from the release's bill of materials.
    """
    from menagerie.format.bundle_manifest import Role
    from transforms.sbom import linked
    from zoo.signing.provenance import read_provenance
    from zoo.store import open_store

    opened = open_store(store_url(store))
    release = opened.find(model, target, build)
    found = read_provenance(opened, release)
    if as_json:
        emit(found)
        return
    bill = release.manifest.files.get(Role.SBOM)
    definition = found["predicate"]["buildDefinition"]
    shown = table("what", "value")
    for name, value in definition["externalParameters"].items():
        shown.add_row(name, str(value))
    for each in definition["resolvedDependencies"]:
        value = each.get("version") or each.get("uri") or str(each.get("digest", {}).get("sha256"))
        shown.add_row(each["name"], value)
    shown.add_row("builder", found["predicate"]["runDetails"]["builder"]["id"])
    for each in found["subject"]:
        shown.add_row(each["name"], each["digest"]["sha256"])
    for part in () if bill is None else linked(opened.read_file(bill)):
        shown.add_row(f"linked: {part.name}", f"{part.version} {part.licence}, {part.how}".strip())
    results().print(shown)
    results().print("signed by a trusted key, and over these very files")
