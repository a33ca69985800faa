"""Promotion of candidates: sign them, enter them in the ledger, and decide on the latest."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.durable import write_durably
from menagerie.format.bundle_manifest import (
    MODEL_SIGNATURE,
    PARTIAL,
    SIGNATURE,
    BundleManifest,
    ReleaseState,
)
from menagerie.format.folder import open_bundle
from menagerie.store.layout import ledger_key, provenance_key
from menagerie.trust.ledger import Ledger, LedgerEntry, envelope
from menagerie.trust.signature import BUNDLE_TYPE, LEDGER_TYPE, encoded, signature_document
from zoo.catalogue.pages import MODEL_SIGNING_KEY
from zoo.catalogue.site import update_catalogue
from zoo.errors import MenagerieError, Retracted, UsageError, ValidationError
from zoo.report.files import report_of
from zoo.signing.keyring import Keyring, Role, keyring_for
from zoo.signing.metadata import StoreMetadata
from zoo.signing.model_signature import IN_TOTO, model_signature
from zoo.signing.provenance import statement, subjects

if TYPE_CHECKING:
    from zoo.spec import ModelSpec
    from zoo.store import Release, Store

_log = logging.getLogger(__name__)


class Promoter:
    """Signer of one store's releases; nothing else in Menagerie moves `latest`.

    It does not judge what it signs: see `check_candidate` and `tasks.publish`. Each decision draws
    the catalogue; if `draws` is false, the caller calls `draw` instead.
    """

    def __init__(self, store: Store, keyring: Keyring, *, draws: bool = True) -> None:
        self._store = store
        self._keyring = keyring
        self._draws = draws

    def has_signed(self, release: Release) -> bool:
        """Return whether the signed ledger names exactly this document."""
        return self._ledger(release).names(release.build_key, release.digest)

    def promote(self, candidate: Release, *, latest: bool = True, reason: str = "") -> Release:
        """Sign a candidate and make it a release; an existing release stays as it is.

        It becomes the latest unless `latest` is false, or it was only emulated and the latest was
        validated; then only its build key selects it. Raise Retracted if this build was retracted.
        """
        with self._keyring.hold():
            ledger = self._ledger(candidate)
            if (forbidden := ledger.retraction(candidate.build_key)) is not None:
                fact = f"was retracted on {forbidden.when}: {forbidden.reason or 'no reason'}"
                place = f"{candidate.model} for {candidate.platform}, {candidate.build_key[:12]}"
                raise Retracted(place, fact, "Fix its cause and convert it: that is another build")
            signature = _signature(self._keyring, candidate.document)
            release = self._store.admit(candidate, signature, self.has_signed)
            last, entry = ledger.last(release.build_key), _entry(ledger, release, reason, latest)
            done = {"promote", "rollback"} if latest else {"promote", "rollback", "admit"}
            if last is not None and last.action in done and last.document == entry.document:
                self._store.sign(release, _signature(self._keyring, release.document))
            else:
                self._attest(release)
                self._write(ledger.with_entry(entry))
        return release

    def rollback(self, ledger: Ledger, build_key: str | None = None, reason: str = "") -> str:
        """Make an earlier release the latest again, and return its build key.

        The default is the previous latest release. Raise UsageError if there is no such release, or
        it was retracted.
        """
        latest = ledger.latest
        before = latest and ledger.with_entry(replace(latest, action="retract")).latest
        if (wanted := build_key or (before.build_key if before else None)) is None:
            raise _no_release(ledger, "has no earlier release")
        if (entry := ledger.last(wanted)) is None:
            raise _no_release(ledger, f"{wanted} is no release of it")
        if entry.action == "retract":
            raise _no_release(ledger, f"{wanted} was retracted on {entry.when}")
        self._decide(ledger, replace(entry, action="rollback", when=_now(), reason=reason))
        return entry.build_key

    def retract(self, ledger: Ledger, build_key: str, reason: str) -> str | None:
        """Sign that a release must no longer be used; return the new latest build key, if any.

        Raise UsageError if `build_key` names no release.
        """
        if (entry := ledger.last(build_key)) is None:
            raise _no_release(ledger, f"{build_key} is no release of it")
        entry = replace(entry, action="retract", when=_now(), reason=reason)
        latest = self._decide(ledger, entry).latest
        return None if latest is None else latest.build_key

    def refresh(self) -> None:
        """Renew the dates of the store's metadata, as the online key's holder does every night."""
        with self._keyring.hold():
            StoreMetadata(self._store.objects, self._keyring).refresh()

    def draw(self, models: Iterable[str]) -> None:
        """Draw the catalogue's pages of these models and its list, after several decisions."""
        with self._keyring.hold():
            self._draw(models)

    def resign(self, ledgers: list[Ledger]) -> None:
        """Sign ledgers and their releases again after a rotation of the keys."""
        with self._keyring.hold():
            for ledger in ledgers:
                for release in self._store.named(ledger):
                    self._store.sign(release, _signature(self._keyring, release.document))
                    self._attest(release)
                self._write(ledger)

    def _decide(self, ledger: Ledger, entry: LedgerEntry) -> Ledger:
        """Sign one more decision, after any that another promoter has signed meanwhile."""
        with self._keyring.hold():
            now = self._store.ledger(ledger.model, ledger.platform) or ledger
            self._write(decided := now.with_entry(entry))
        return decided

    def _ledger(self, release: Release) -> Ledger:
        found = self._store.ledger(release.model, release.platform)
        return found or Ledger(
            model=release.model, target=release.target, platform=release.platform
        )

    def _write(self, ledger: Ledger) -> None:
        payload = ledger.document()
        signatures = _signed(self._keyring, encoded(LEDGER_TYPE, payload))
        key, content = ledger_key(ledger.model, ledger.platform), envelope(payload, signatures)
        self._store.objects.put_small(key, content)
        StoreMetadata(self._store.objects, self._keyring).list_ledger(key, content)
        if self._draws:
            self._draw([ledger.model])

    def _draw(self, models: Iterable[str]) -> None:
        try:
            update_catalogue(self._store, models)
        except MenagerieError as error:  # the decision stands
            _log.warning("the catalogue was not updated: %s; run `zoo release catalog`", error)

    def _attest(self, release: Release) -> None:
        payload = statement(release, report_of(self._store, release))
        content = envelope(payload, _signed(self._keyring, encoded(IN_TOTO, payload)), IN_TOTO)
        self._store.objects.put_small(provenance_key(*release.names), content)
        key, files = self._keyring.model_signing_key(), subjects(release)
        made = model_signature(release.model, files, key)
        self._store.sign(release, made, MODEL_SIGNATURE)
        self._publish_key(key.public_key.keyval["public"].encode())

    def _publish_key(self, own: bytes) -> None:
        """Publish the key of model.sig once; warn if another holder's key is already published."""
        shown = self._store.objects.read_if_there(MODEL_SIGNING_KEY, 2**16)
        if shown is None:
            self._store.objects.put_small(MODEL_SIGNING_KEY, own)
        elif shown != own:
            _log.warning(
                "%s is of another key than model-signing.pem here: what was signed just now does "
                "not prove by it; bring that key, or remove the file and sign all anew by "
                "`zoo keys rotate release`",
                f"{self._store.url}/{MODEL_SIGNING_KEY}",
            )


def sign_own(folder: Path, keyring: Keyring | None = None) -> None:
    """Sign a bundle in a folder with this user's own keys, or with `keyring`.

    The user's keys are created on first use. The bundle stays unsigned if this process may not
    sign. Raise ArtifactError if the folder is no sound bundle.
    """
    if (keys := keyring or keyring_for(str(folder))) is not None:
        signature = _signature(keys, open_bundle(folder).document)
        write_durably(folder / SIGNATURE, signature, partial=folder / PARTIAL)


def _entry(ledger: Ledger, release: Release, reason: str, latest: bool) -> LedgerEntry:
    """Return the decision on a release; an emulated one never replaces a validated one."""
    state, held = release.manifest.state, ledger.latest and ledger.latest.state
    lesser = held is ReleaseState.VALIDATED and state is ReleaseState.EMULATED
    return LedgerEntry(
        action="promote" if latest and not lesser else "admit",
        build_key=release.build_key,
        document=release.digest,
        state=state,
        when=_now(),
        reason=reason,
    )


def _signed(keyring: Keyring, message: bytes) -> dict[str, bytes]:
    return {
        signer.public_key.keyid: bytes.fromhex(signer.sign(message).signature)
        for signer in keyring.signers(Role.RELEASE)
    }


def _signature(keyring: Keyring, document: bytes) -> bytes:
    return signature_document(_signed(keyring, encoded(BUNDLE_TYPE, document)))


def _no_release(ledger: Ledger, fact: str) -> UsageError:
    place = f"{ledger.model} for {ledger.platform}"
    return UsageError(place, fact, f"See `zoo release list {ledger.model}`")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_candidate(manifest: BundleManifest, spec: ModelSpec) -> None:
    """Raise ValidationError, with all reasons, if a candidate does not match its entry.

    `spec` is the promoter's copy of the entry. A caller that did not compute the candidate's
    golden cases itself computes them again.
    """
    if faults := "; ".join(_faults(manifest, spec)):
        fact = f"the candidate is not what the manifest asks for: {faults}"
        advice = "Convert it again with this manifest"
        raise ValidationError(f"{manifest.model} for {manifest.platform}", fact, advice)


def _faults(manifest: BundleManifest, spec: ModelSpec) -> Iterator[str]:
    if manifest.state is ReleaseState.LOWERED:
        yield "state is lowered: it was never run"
    if manifest.licence != spec.licence.spdx:
        yield f"licence is {manifest.licence!r}, not {spec.licence.spdx!r}"
    for dtype, given in manifest.tolerances.items():
        asked = spec.tolerance(dtype)
        if asked is None or given.absolute > asked.absolute:
            most = None if asked is None else asked.absolute
            yield f"tolerances.{dtype} allows {given.absolute:g}, not {most}"
        elif (given.snr_db or 1e9) < (asked.snr_db or 1e9):
            yield f"tolerances.{dtype} asks for {given.snr_db} dB, not {asked.snr_db}"
    asked_for = [program.name for program in spec.programs]
    if [program.name for program in manifest.programs] != asked_for:
        yield f"programs are not {', '.join(asked_for)}"
    if (manifest.accuracy is None) != (spec.accuracy is None):
        yield f"accuracy has {'no data for the gate' if spec.accuracy else 'data'}"
