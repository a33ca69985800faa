"""Two releases side by side: what is better, worse or another, and what a gate makes of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from menagerie import figures
from menagerie.format.bundle_manifest import ReleaseState
from zoo.report.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from menagerie.format.bundle_manifest import BundleManifest
    from zoo.records import ConversionReport

T = TypeVar("T")
_NOTHING = "\N{EN DASH}"
_UNTOLD = "and its report does not say how much it is now"


class Change(StrEnum):
    """What the second release is beside the first."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    OTHER = "other"


@dataclass(frozen=True)
class Difference:
    """One figure or fact of both releases, as people read it."""

    section: str
    what: str
    before: str
    after: str
    change: Change


@dataclass(frozen=True)
class RegressionLimits:
    """How much worse a release may be than the latest and still take its place.

    Attributes:
        slower: factor on the time over eager's, each measured beside its own release.
        larger: factor on the bytes of all files.
        snr_db: decibels by which the lowest signal-to-noise ratio may fall.
        snr_enough: decibels above which a fall does not matter.
    """

    slower: float = 1.25
    larger: float = 1.1
    snr_db: float = 6.0
    snr_enough: float = 120.0


@dataclass(frozen=True)
class Regression:
    """A limit that a release breaks: what is worse, and by how much."""

    what: str
    fact: str


class Side(NamedTuple):
    """A release, by its manifest and, where it has one, its report."""

    manifest: BundleManifest
    report: ConversionReport | None


_Value = Callable[[Side], float | None]
_Values = Callable[[Side], Mapping[str, T]]


def compare(before: Side, after: Side) -> tuple[Difference, ...]:
    """All that the manifests and reports of two releases say, also what is equal.

    Times stand beside eager's, which was measured in turns with each: those of two days do not
    compare.

    Args:
        before: the first; without a report, only the manifest's facts are given.
        after: the second.
    """
    both = before, after
    machines = {"" if s.report is None else s.report.validation.machine for s in both}
    median = "median" if len(machines) == 1 else "median, on two kinds of machine"
    symbols = _facts("kernels", both, _symbols)
    return (
        *_figures("numerics", both, _of("lowest SNR", _snr), _DECIBELS),
        *_figures("numerics", both, _of("largest error", _error), _Scale(figures.error)),
        *_figures("numerics", both, _of("accuracy", _accuracy), _SHARE),
        *_facts("numerics", both, _tolerances),
        *_figures("latency", both, _of("over eager's", _of_eager), _RATIO),
        *_facts("latency", both, lambda side: _median(side, median)),
        *_figures("size", both, _sizes, _BYTES),
        *_figures("graph", both, _last_nodes, _NUMBER),
        *_facts("passes", both, _changes, without="did not run"),
        *_figures("kernels", both, _of("generated", _loops), _NUMBER),
        *(each for each in symbols if each.change is not Change.SAME),
        *_facts("provenance", both, _provenance),
    )


def regressions(before: Side, after: Side, limits: RegressionLimits) -> tuple[Regression, ...]:
    """By what the second release is worse than the limits allow; empty if it may be the latest.

    What the first one's report tells, the second one's must tell too: a figure that is left out
    would pass every limit.
    """
    if before.report is not None and after.report is None:
        return (Regression("report", "there is none that can be read, and the latest has one"),)
    slower, larger, noisier = limits.slower, limits.larger, limits.snr_db
    table: tuple[tuple[str, _Value, _Scale, Callable[[float], float], str], ...] = (
        ("size", _all_bytes, _BYTES, lambda was: was * larger, f", beyond {larger:g} times"),
        ("latency", _of_eager, _RATIO, lambda was: was * slower, f", beyond {slower:g} times"),
        ("parity", _snr, _DECIBELS, lambda was: min(was - noisier, limits.snr_enough),
         f", a fall of more than {noisier:g} dB"),
        ("accuracy", _accuracy, _SHARE, lambda was: was, ""),
    )  # fmt: skip
    found = []
    for what, value, scale, worst, beyond in table:
        was, now = value(before), value(after)
        if was is None or (what == "latency" and not _times_compare(before, after)):
            continue
        if now is None:
            found.append(Regression(what, f"{scale.written(was)}, {_UNTOLD}"))
        elif not (now >= worst(was) if scale.rising else now <= worst(was)):  # also where it is NaN
            fact = f"{scale.written(was)} became {scale.written(now)}{beyond}"
            found.append(Regression(what, fact))
    return tuple(found)


@dataclass(frozen=True)
class _Scale:
    """How a figure is written, what is nearer than a cause, and whether more of it is better."""

    written: Callable[[Any], str]
    absolute: float = 0.0
    relative: float = 0.0
    rising: bool = False

    def judged(self, before: float | None, after: float | None) -> Change:
        """What the second figure is beside the first."""
        if before is None or after is None:
            return Change.SAME if before == after else Change.OTHER
        if math.isclose(before, after, rel_tol=self.relative, abs_tol=self.absolute):
            return Change.SAME
        return Change.BETTER if (after > before) == self.rising else Change.WORSE


_DECIBELS = _Scale(figures.decibels, absolute=0.5, rising=True)
_SHARE = _Scale(figures.percent, rising=True)
_RATIO = _Scale(lambda value: f"{value:.2f} of its time", relative=0.1)  # of two runs
_BYTES = _Scale(figures.size, absolute=1000, relative=0.001)  # a report's words differ by so much
_NUMBER = _Scale(figures.thousands)


def _figures(
    section: str, both: tuple[Side, Side], values: _Values[float], scale: _Scale
) -> Iterator[Difference]:
    """What the sides give as numbers, by name; left out where neither has one."""
    one, two = map(values, both)
    for name in dict.fromkeys([*one, *two]):
        pair = one.get(name), two.get(name)
        words = [_NOTHING if value is None else scale.written(value) for value in pair]
        yield Difference(section, name, words[0], words[1], scale.judged(*pair))


def _facts(
    section: str, both: tuple[Side, Side], values: _Values[str], without: str = _NOTHING
) -> Iterator[Difference]:
    """What the sides give as texts, by name."""
    one, two = map(values, both)
    for name in dict.fromkeys([*one, *two]):
        before, after = one.get(name, without), two.get(name, without)
        change = Change.SAME if before == after else Change.OTHER
        yield Difference(section, name, before, after, change)


def _of(name: str, value: _Value) -> _Values[float]:
    """One figure under its name, for `_figures`."""
    return lambda side: {} if (found := value(side)) is None else {name: found}


def _all_bytes(side: Side) -> float:
    return side.manifest.size


def _sizes(side: Side) -> dict[str, float]:
    roles = {place.replace("files.", ""): entry.bytes for place, entry in side.manifest.uses()}
    return {"all files": side.manifest.size, **dict(sorted(roles.items()))}


def _tolerances(side: Side) -> dict[str, str]:
    kept = sorted(side.manifest.tolerances.items())
    return {f"tolerance of {dtype}": figures.error(each.absolute) for dtype, each in kept}


def _symbols(side: Side) -> dict[str, str]:
    return {s: "imported" for p in side.manifest.programs for s in sorted(p.symbols)}


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


def _changes(side: Side) -> dict[str, str]:
    found: Counter[str] = Counter()
    for log in () if side.report is None else side.report.passes:
        for record in log.records:
            found[record.name] += len(record.changes)
    return {name: figures.count(number, "change") for name, number in found.items()}


def _loops(side: Side) -> float | None:
    lowering = None if side.report is None else side.report.lowering
    return None if lowering is None else sum(each.generated_kernels for each in lowering)


def _snr(side: Side) -> float | None:
    return None if side.report is None else side.report.worst_snr_db


def _error(side: Side) -> float | None:
    return None if side.report is None else side.report.worst_abs


def _accuracy(side: Side) -> float | None:
    """Of the accuracy gate; of speech, one minus its rate of wrong words."""
    if side.report is None:
        return None
    found = side.report.validation
    if found.accuracy is not None:
        return found.accuracy.artifact
    return min((1 - each.rate for each in found.word_errors), default=None)


def _median(side: Side, name: str) -> dict[str, str]:
    median = None if side.report is None else summarise(side.report).artifact_ms
    return {} if median is None else {name: figures.milliseconds(median)}


def _of_eager(side: Side) -> float | None:
    if side.report is None or side.report.validation.emulated:
        return None
    return summarise(side.report).ratio


def _times_compare(before: Side, after: Side) -> bool:
    """Whether both were timed at the same sizes; else eager's time differs whatever they do.

    An emulated release takes no measured one's place anyway.
    """
    one, two = _timed(before), _timed(after)
    emulated = after.manifest.state is ReleaseState.EMULATED
    return not emulated and (not one or not two or one == two)


def _timed(side: Side) -> dict[str, list[dict[str, int]]]:
    """The sizes at which each program was timed."""
    programs = () if side.report is None else side.report.validation.programs
    return {
        p.program: [dict(c.dimensions) for c in p.cases if c.case == p.latency.case]
        for p in programs
        if p.latency is not None
    }
