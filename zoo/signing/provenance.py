"""Where a release comes from, as the field says it: an in-toto statement with SLSA's predicate.

https://in-toto.io/Statement/v1 and https://slsa.dev/provenance/v1. The promoter signs it: what it
says of the build is the builder's word, as report and manifest have it; that these are the files
that were judged and promoted is the promoter's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from menagerie.format.bundle_manifest import MANIFEST
from menagerie.store.layout import provenance_key
from menagerie.trust.ledger import MAX_LEDGER_BYTES, open_envelope
from menagerie.typed_json import Malformed, load
from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from zoo.records import ConversionReport
    from zoo.store import Release, Store

__all__ = ["IN_TOTO", "read_provenance", "statement"]

IN_TOTO: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "https://menagerie.invalid/conversion/v1"


def statement(release: Release, report: ConversionReport | None) -> bytes:
    """The statement over a release, as canonical JSON.

    Args:
        release: its files and its manifest are the subjects.
        report: of its conversion, for passes and stages; None: those are left out.
    """
    manifest = release.manifest
    subjects = _subjects(release)
    dependencies = [{"name": n, "version": v} for n, v in sorted(manifest.versions.items())]
    internal: dict[str, Any] = {"state": manifest.state.value}
    machine = ""
    if report is not None:
        machine = report.validation.machine
        internal["passes"] = [
            {"program": log.program, "passes": [each.name for each in log.records]}
            for log in report.passes
        ]
    fields = {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in sorted(subjects.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
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
                    *dependencies,
                ],
            },
            "runDetails": {
                "builder": {"id": f"menagerie worker on {machine or 'an unnamed machine'}"},
                "metadata": {"invocationId": manifest.build_key, "finishedOn": manifest.created},
            },
        },
    }
    return (json.dumps(fields, sort_keys=True, indent=1) + "\n").encode()


def read_provenance(store: Store, release: Release) -> dict[str, Any]:
    """A release's statement, once its signature and its subjects are found to be right.

    Raises:
        NotInStore: it has none.
        Untrusted: no trusted key has signed it.
        ArtifactError: it speaks of other files.
    """
    key = provenance_key(*release.names)
    place = f"{store.url}/{key}"
    content = store.objects.read_small(key, MAX_LEDGER_BYTES)
    try:
        found: dict[str, Any] = load(open_envelope(content, place, kind=IN_TOTO))
        given = {each["name"]: each["digest"]["sha256"] for each in found["subject"]}
    except (Malformed, KeyError, TypeError) as error:
        raise ArtifactError(place, f"is no statement: {error}", "Promote it again") from None
    if given != _subjects(release):
        raise ArtifactError(place, "speaks of other files than the release's", "Promote it again")
    return found


def _subjects(release: Release) -> dict[str, str]:
    """The sha256 of each file under its name, the manifest's too."""
    return {n: e.sha256 for n, e in release.manifest.listed.items()} | {MANIFEST: release.digest}
