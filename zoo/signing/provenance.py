"""The provenance of a release: an in-toto statement with the SLSA provenance predicate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from menagerie.format.bundle_manifest import MANIFEST
from menagerie.store.layout import provenance_key
from menagerie.trust.ledger import MAX_LEDGER_BYTES, open_envelope
from menagerie.typed_json import Malformed, load
from zoo.errors import ArtifactError
from zoo.signing.model_signature import IN_TOTO, STATEMENT

if TYPE_CHECKING:
    from zoo.records import ConversionReport
    from zoo.store import Release, Store


def statement(release: Release, report: ConversionReport | None) -> bytes:
    """Return the SLSA statement on a release's files and manifest, as canonical JSON.

    The report of the conversion, if there is one, adds passes and stages.
    """
    manifest = release.manifest
    internal: dict[str, Any] = {"state": manifest.state.value}
    if report is not None:
        internal["passes"] = [
            {"program": log.program, "passes": [record.name for record in log.records]}
            for log in report.passes
        ]
    machine = (report and report.validation.machine) or "an unnamed machine"
    fields = {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in sorted(subjects(release).items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://menagerie.invalid/conversion/v1",
                "externalParameters": {
                    "model": manifest.model,
                    "target": manifest.target,
                    "platform": manifest.platform,
                    "randomWeights": manifest.random_weights,
                    "licence": manifest.licence,
                },
                "internalParameters": internal,
                "resolvedDependencies": [
                    {"name": "source", "uri": manifest.source},
                    {"name": "build key", "digest": {"sha256": manifest.build_key}},
                    *({"name": n, "version": v} for n, v in sorted(manifest.versions.items())),
                ],
            },
            "runDetails": {
                "builder": {"id": f"menagerie worker on {machine}"},
                "metadata": {"invocationId": manifest.build_key, "finishedOn": manifest.created},
            },
        },
    }
    return (json.dumps(fields, sort_keys=True, indent=1) + "\n").encode()


def read_provenance(store: Store, release: Release) -> dict[str, Any]:
    """Return a release's statement after checking its signature and subjects.

    Raise NotInStore if it has none, Untrusted if no trusted key has signed it, ArtifactError if it
    describes other files.
    """
    key = provenance_key(*release.names)
    place = f"{store.url}/{key}"
    content = store.objects.read_small(key, MAX_LEDGER_BYTES)
    try:
        signed: dict[str, Any] = load(open_envelope(content, place, kind=IN_TOTO))
        digests = {part["name"]: part["digest"]["sha256"] for part in signed["subject"]}
    except (Malformed, KeyError, TypeError) as error:
        raise ArtifactError(place, f"is not a statement: {error}", "Promote it again") from None
    if digests != subjects(release):
        raise ArtifactError(place, "lists other files than the release", "Promote it again")
    return signed


def subjects(release: Release) -> dict[str, str]:
    """Return the sha256 of each file by name, including the manifest."""
    return {n: e.sha256 for n, e in release.manifest.listed.items()} | {MANIFEST: release.digest}
