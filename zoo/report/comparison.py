"""Comparison of two releases figure by figure, and limits for the second one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from menagerie import figures
from menagerie.format.bundle_manifest import BundleManifest, ReleaseState
from zoo.records import ConversionReport
from zoo.report.summary import Summary, summarise

_UNTOLD = "and its report does not say how much it is now"


class Change(StrEnum):
    """How the second release compares with the first."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    OTHER = "other"


@dataclass(frozen=True)
class Difference:
    """One figure or fact of both releases, formatted for people."""

    section: str
    what: str
    before: str
    after: str
    change: Change


@dataclass(frozen=True)
class RegressionLimits:
    """Limits on how much worse a release may be than the latest that it replaces."""

    slower: float = 1.25  # factor on the time relative to eager's, measured with each release
    larger: float = 1.1  # factor on the bytes of all files
    snr_db: float = 6.0  # by which the lowest signal-to-noise ratio may fall
    snr_enough: float = 120.0  # decibels above which a fall does not matter


@dataclass(frozen=True)
class Regression:
    """A limit that a release exceeds: the figure, and by how much it is worse."""

    what: str
    fact: str


@dataclass(frozen=True)
class Side:
    """A release: its manifest and, if it has one, its report."""

    manifest: BundleManifest
    report: ConversionReport | None

    @cached_property
    def figures(self) -> Summary:
        """The figures of its report; empty without a report."""
        return Summary() if self.report is None else summarise(self.report)


_Pair = tuple[float | None, float | None]
_Values = Callable[[Side], Mapping[str, float | str | None]]


def compare(before: Side, after: Side) -> tuple[Difference, ...]:
    """Return all figures of the manifests and reports of two releases, equal ones included.

    Without a report, a side has only the manifest's facts. Times are relative to eager's, which was
    measured in turns with each release, because times of different days are not comparable.
    """
    both = before, after
    machines = {"" if s.report is None else s.report.validation.machine for s in both}
    median = "median" if len(machines) == 1 else "median, on two kinds of machine"
    apart = _symbols(before) ^ _symbols(after)
    table: tuple[tuple[str, _Values, _Scale], ...] = (
        ("numerics", lambda side: {"lowest SNR": side.figures.worst_snr_db}, _DECIBELS),
        ("numerics", lambda side: {"largest error": side.figures.worst_abs}, _ERROR),
        ("numerics", lambda side: {"accuracy": side.figures.accuracy}, _SHARE),
        ("numerics", _tolerances, _FACT),
        ("latency", lambda side: {"over eager's": side.figures.ratio}, _RATIO),
        ("latency", lambda side: {median: side.figures.artifact_ms}, _TIME),
        ("size", _sizes, _BYTES),
        ("graph", _last_nodes, _NUMBER),
        ("passes", _changes, _PASS),
        ("kernels", lambda side: {"generated": _loops(side)}, _NUMBER),
        ("kernels", lambda side: dict.fromkeys(sorted(_symbols(side) & apart), "imported"), _FACT),
        ("provenance", _provenance, _FACT),
    )
    return tuple(each for row in table for each in _differences(both, *row))


def regressions(before: Side, after: Side, limits: RegressionLimits) -> tuple[Regression, ...]:
    """Return where the second release exceeds the limits; empty if it may be the latest.

    A figure of the first report that the second one lacks is a regression, since it would
    otherwise pass every limit.
    """
    if before.report is not None and after.report is None:
        return (Regression("report", "there is none that can be read, and the latest has one"),)
    slower, larger, noisier = limits.slower, limits.larger, limits.snr_db
    sizes = before.manifest.size, after.manifest.size
    was, now = before.figures, after.figures
    ratios = (was.ratio if _times_compare(before, after) else None), now.ratio
    table: tuple[tuple[str, _Pair, _Scale, Callable[[float], float], str], ...] = (
        ("size", sizes, _BYTES, lambda size: size * larger, f", beyond {larger:g} times"),
        ("latency", ratios, _RATIO, lambda ratio: ratio * slower, f", beyond {slower:g} times"),
        ("parity", (was.worst_snr_db, now.worst_snr_db), _DECIBELS,
         lambda snr: min(snr - noisier, limits.snr_enough),
         f", a fall of more than {noisier:g} dB"),
        ("accuracy", (was.accuracy, now.accuracy), _SHARE, lambda share: share, ""),
    )  # fmt: skip
    found = []
    for what, (old, new), scale, worst, beyond in table:
        if old is None:
            continue
        if new is None:
            found.append(Regression(what, f"{scale.written(old)}, {_UNTOLD}"))
        elif not (new >= worst(old) if scale.rising else new <= worst(old)):  # or new is NaN
            fact = f"{scale.written(old)} became {scale.written(new)}{beyond}"
            found.append(Regression(what, fact))
    return tuple(found)


@dataclass(frozen=True)
class _Scale:
    """How to format a figure, which difference is noise, and whether a higher value is better."""

    written: Callable[[Any], str] = str
    absolute: float = 0.0
    relative: float = 0.0
    rising: bool | None = False  # None: neither is better
    without: str = "\N{EN DASH}"

    def judged(self, before: Any, after: Any) -> Change:
        """Classify the second figure relative to the first."""
        if self.rising is None or before is None or after is None:
            return Change.SAME if before == after else Change.OTHER
        if math.isclose(before, after, rel_tol=self.relative, abs_tol=self.absolute):
            return Change.SAME
        return Change.BETTER if (after > before) == self.rising else Change.WORSE


_FACT = _Scale(rising=None)
_PASS = _Scale(lambda found: figures.count(found, "change"), rising=None, without="did not run")
_TIME = _Scale(figures.milliseconds, rising=None)
_ERROR = _Scale(figures.error)
_DECIBELS = _Scale(figures.decibels, absolute=0.5, rising=True)
_SHARE = _Scale(figures.percent, rising=True)
_RATIO = _Scale(lambda value: f"{value:.2f} of its time", relative=0.1)  # between two runs
_BYTES = _Scale(figures.size, absolute=1000, relative=0.001)  # a report's length varies by that
_NUMBER = _Scale(figures.thousands)


def _differences(
    both: tuple[Side, Side], section: str, values: _Values, scale: _Scale
) -> Iterator[Difference]:
    """Yield the sides' figures by name, without those that neither side has."""
    one, two = map(values, both)
    for name in dict.fromkeys([*one, *two]):
        pair = one.get(name), two.get(name)
        if pair != (None, None):
            words = [scale.without if value is None else scale.written(value) for value in pair]
            yield Difference(section, name, words[0], words[1], scale.judged(*pair))


def _sizes(side: Side) -> dict[str, float]:
    roles = {place.replace("files.", ""): entry.bytes for place, entry in side.manifest.uses()}
    return {"all files": side.manifest.size, **dict(sorted(roles.items()))}


def _tolerances(side: Side) -> dict[str, str]:
    kept = sorted(side.manifest.tolerances.items())
    return {f"tolerance of {dtype}": figures.error(each.absolute) for dtype, each in kept}


def _symbols(side: Side) -> set[str]:
    return {symbol for program in side.manifest.programs for symbol in program.symbols}


def _provenance(side: Side) -> dict[str, str]:
    manifest, seed = side.manifest, side.manifest.random_weights
    weights = "of the source" if seed is None else f"random, seed {seed}"
    return {
        "build": manifest.build_key[:12],
        "created": figures.moment(manifest.created),
        "platform": manifest.platform,
        "state": manifest.state.value,
        "source": manifest.source,
        "licence": manifest.licence,
        "weights": f"{manifest.weights.sha256[:12]} ({weights})",
        **dict(sorted(manifest.versions.items())),
    }


def _last_nodes(side: Side) -> dict[str, float]:
    logs = () if side.report is None else side.report.passes
    return {f"nodes of {log.program}": log.records[-1].nodes_after for log in logs if log.records}


def _changes(side: Side) -> dict[str, int]:
    found: Counter[str] = Counter()
    for log in () if side.report is None else side.report.passes:
        for record in log.records:
            found[record.name] += len(record.changes)
    return dict(found)


def _loops(side: Side) -> float | None:
    lowering = None if side.report is None else side.report.lowering
    return None if lowering is None else sum(each.generated_kernels for each in lowering)


def _times_compare(before: Side, after: Side) -> bool:
    """Return whether both were timed at the same sizes; otherwise eager's times differ too.

    An emulated release never replaces a measured one.
    """
    one, two = _timed(before), _timed(after)
    emulated = after.manifest.state is ReleaseState.EMULATED
    return not emulated and (not one or not two or one == two)


def _timed(side: Side) -> dict[str, list[dict[str, int]]]:
    """Return the sizes at which each program was timed."""
    programs = () if side.report is None else side.report.validation.programs
    return {
        p.program: [dict(c.dimensions) for c in p.cases if c.case == p.latency.case]
        for p in programs
        if p.latency is not None
    }
