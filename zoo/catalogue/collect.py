"""The catalogue's data on models, read from a store: only what was promoted and signed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from menagerie.format.bundle_manifest import MANIFEST, SIGNATURE, BundleProgram, Role
from menagerie.store.layout import blob_key, release_key, signature_key
from menagerie.trust.ledger import Ledger
from zoo.base_models import Frozen
from zoo.errors import UnknownName
from zoo.precision import Precision
from zoo.records import ConversionReport
from zoo.report.files import report_of
from zoo.report.summary import Summary, summarise

if TYPE_CHECKING:
    from zoo.store import Release, Store

    _Reported = tuple[Release, ConversionReport | None]
    _Sibling = tuple[str, Precision, str, "CataloguedRelease"]


class CataloguedFile(Frozen):
    """A file of a release; `key` is its key in the store, `name` its path in the bundle."""

    name: str
    key: str
    bytes: int


class CataloguedRelease(Frozen):
    """A promoted release with the figures of its report.

    Attributes:
        build_key: 64 hexadecimal digits.
        when: time of its first promotion, in ISO 8601.
        state: how it was proven: `emulated` or `validated`.
        retracted: the reason, if its use is forbidden.
        bytes: total size of all files.
        figures: figures of its conversion; none if its report cannot be read.
    """

    build_key: str
    when: str
    state: str
    retracted: str | None = None
    bytes: int
    figures: Summary = Summary()


class History(Frozen):
    """A model's releases for one platform, in the order of their first promotion.

    `latest` is a build key, or None if all were retracted. `files`, and `program`, which is its
    first program, are those of the latest release.
    """

    target: str
    platform: str
    releases: tuple[CataloguedRelease, ...]
    latest: str | None
    files: tuple[CataloguedFile, ...] = ()
    program: BundleProgram | None = None

    @property
    def current(self) -> CataloguedRelease | None:
        """The latest release."""
        return next((r for r in self.releases if r.build_key == self.latest), None)

    @property
    def bill(self) -> CataloguedFile | None:
        """The bill of materials, which releases of earlier versions lack."""
        return next((f for f in self.files if f.name.endswith(".cdx.json")), None)


class CataloguedModel(Frozen):
    """A model and all its promoted releases."""

    name: str
    summary: str = ""
    source: str = ""
    licence: str = ""
    parameters: int | None = None
    random_weights: int | None = None
    speech: bool = False  # whether `menagerie transcribe` accepts it
    versions: dict[str, str] = Field(default_factory=dict)
    histories: tuple[History, ...] = ()


def siblings(name: str, known: Mapping[str, CataloguedModel]) -> dict[Precision, str]:
    """Return all models of the entry to which `name` belongs, float32 first.

    A variant's name is the entry's, `_` and the precision. A name of this form means nothing if
    the entry itself is missing.
    """
    suffixes = {p: f"_{p.suffix}" for p in Precision}
    base = next((stem for s in suffixes.values() if (stem := name.removesuffix(s)) != name), name)
    if base not in known:
        return {Precision.FLOAT32: name}
    named = {p: base + suffix for p, suffix in suffixes.items() if p is not Precision.FLOAT32}
    return {Precision.FLOAT32: base, **{p: n for p, n in named.items() if n in known}}


def side_by_side(name: str, known: Mapping[str, CataloguedModel]) -> list[_Sibling]:
    """Return platform, precision, model and latest release; empty with a single precision."""
    found = [
        (history.platform, precision, sibling, history.current)
        for precision, sibling in siblings(name, known).items()
        for history in known[sibling].histories
        if history.current is not None
    ]
    if len({precision for _, precision, *_ in found}) < 2:  # noqa: PLR2004 - nothing to compare
        return []
    return sorted(found, key=lambda side: side[0])


def collect(store: Store, model: str) -> CataloguedModel:
    """Return a model as described by its signed ledgers and its reports.

    Raise UnknownName if none of its releases was promoted, Untrusted if no trusted key has signed
    a ledger, StoreError if the store cannot be read.
    """
    found = [_history(store, ledger) for ledger in store.ledgers(model)]
    if not found:
        fact = f"nothing of {model} was promoted"
        raise UnknownName(store.url, fact, f"Run `zoo release promote {model}`")
    histories = tuple(history for history, _ in found)
    known = [(history.latest is None, latest) for history, latest in found if latest is not None]
    if not known:
        return CataloguedModel(name=model, histories=histories)
    _, (newest, report) = min(known, key=lambda each: each[0])
    return CataloguedModel(
        name=model,
        summary="" if report is None else report.summary,
        source=newest.manifest.source,
        licence=newest.manifest.licence,
        parameters=None if report is None else report.parameters,
        random_weights=newest.manifest.random_weights,
        speech=Role.SPEECH in newest.manifest.files,
        versions=newest.manifest.versions,
        histories=histories,
    )


def _history(store: Store, ledger: Ledger) -> tuple[History, _Reported | None]:
    """Return a platform's releases and the latest, or the last if all were retracted."""
    found = {each.build_key: (each, report_of(store, each)) for each in store.named(ledger)}
    current = None if ledger.latest is None else found.get(ledger.latest.build_key)
    latest = None if current is None else current[0]
    history = History(
        target=ledger.target,
        platform=ledger.platform,
        releases=tuple(_release(ledger, *each) for each in found.values()),
        latest=None if latest is None else latest.build_key,
        files=() if latest is None else tuple(_files(latest)),
        program=None if latest is None else latest.manifest.programs[0],
    )
    return history, current or next(reversed(found.values()), None)


def _release(
    ledger: Ledger, release: Release, report: ConversionReport | None
) -> CataloguedRelease:
    mine = [entry for entry in ledger.entries if entry.build_key == release.build_key]
    forbidden = ledger.retraction(release.build_key)
    return CataloguedRelease(
        build_key=release.build_key,
        when=mine[0].when,
        state=release.manifest.state.value,
        retracted=None if forbidden is None else forbidden.reason or "no reason is given",
        bytes=release.size,
        figures=Summary() if report is None else summarise(report),
    )


def _files(release: Release) -> Iterable[CataloguedFile]:
    """Yield every file of the bundle, including manifest and signature."""
    key = release_key(*release.names, confirmed=release.confirmed)
    yield CataloguedFile(name=MANIFEST, key=key, bytes=len(release.document))
    signed = signature_key(*release.names, confirmed=release.confirmed)
    yield CataloguedFile(name=SIGNATURE, key=signed, bytes=0)
    for name, entry in sorted(release.manifest.listed.items()):
        yield CataloguedFile(name=name, key=blob_key(entry.sha256), bytes=entry.bytes)
