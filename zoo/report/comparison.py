"""Two releases side by side: what is better, worse or another, and what a gate makes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from menagerie import figures
from menagerie.format.bundle_manifest import ReleaseState
from zoo.report.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from menagerie.format.bundle_manifest import BundleManifest
    from zoo.records import ConversionReport

T = TypeVar("T", int, float)

_NOTHING = "\N{EN DASH}"
_UNTOLD = "and its report does not say how much it is now"
_SAME_TIME = 0.1  # ratios to eager of two runs differ by so much without a cause
_SAME_RATIO_DB = 0.5
_SAME_BYTES = 1000  # a report's words differ by so much
_SAME_SHARE = 0.001


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


def compare(before: Side, after: Side) -> tuple[Difference, ...]:
    """All that the manifests and reports of two releases say, also what is equal.

    Args:
        before: the first; without a report, only the manifest's facts are given.
        after: the second.
    """
    return (
        *_numerics(before, after),
        *_latency(before, after),
        *_sizes(before, after),
        *_graphs(before, after),
        *_passes(before, after),
        *_kernels(before, after),
        *_provenance(before, after),
    )


def regressions(before: Side, after: Side, limits: RegressionLimits) -> tuple[Regression, ...]:
    """By what the second release is worse than the limits allow; empty if it may be the latest.

    What the first one's report tells, the second one's must tell too: a figure that is left out
    would pass every limit.
    """
    if before.report is not None and after.report is None:
        return (Regression("report", "there is none that can be read, and the latest has one"),)
    return tuple(
        Regression(what, fact)
        for what, fact in (
            ("size", _too_large(before, after, limits)),
            ("latency", _too_slow(before, after, limits)),
            ("parity", _too_noisy(before, after, limits)),
            ("accuracy", _less_accurate(before, after)),
        )
        if fact
    )


def _too_large(first: Side, second: Side, limits: RegressionLimits) -> str:
    before, after = first.manifest.size, second.manifest.size
    if after <= before * limits.larger:
        return ""
    return f"{figures.size(before)} became {figures.size(after)}, beyond {limits.larger:g} times"


def _too_slow(first: Side, second: Side, limits: RegressionLimits) -> str:
    before, after = _of_eager(first), _of_eager(second)
    if _timed(first) and _timed(second) and _timed(first) != _timed(second):
        return ""  # other sizes: their shares of eager's time differ whatever the artifacts do
    if before is None or second.manifest.state is ReleaseState.EMULATED:
        return ""  # an emulated release takes no measured one's place anyway
    if after is None:
        return f"{before:.2f} of eager's time, {_UNTOLD}"
    if after <= before * limits.slower:
        return ""
    return f"{before:.2f} of eager's time became {after:.2f}, beyond {limits.slower:g} times"


def _too_noisy(first: Side, second: Side, limits: RegressionLimits) -> str:
    before, after = _snr(first), _snr(second)
    if before is None:
        return ""
    if after is None:
        return f"{figures.decibels(before)}, {_UNTOLD}"
    if after >= limits.snr_enough or after >= before - limits.snr_db:
        return ""
    fall = f"{figures.decibels(before)} became {figures.decibels(after)}"
    return f"{fall}, a fall of more than {limits.snr_db:g} dB"


def _less_accurate(first: Side, second: Side) -> str:
    before, after = _accuracy(first), _accuracy(second)
    if before is None:
        return ""
    if after is None:
        return f"{figures.percent(before)}, {_UNTOLD}"
    if after >= before:
        return ""
    return f"{figures.percent(before)} became {figures.percent(after)}"


def _numerics(first: Side, second: Side) -> Iterator[Difference]:
    a, b = _snr(first), _snr(second)
    yield _figure("numerics", "lowest SNR", (a, b), figures.decibels, _SAME_RATIO_DB, rising=True)
    errors = [None if s.report is None else s.report.worst_abs for s in (first, second)]
    yield _figure("numerics", "largest error", (errors[0], errors[1]), figures.error, 0.0)
    if (pair := (_accuracy(first), _accuracy(second))) != (None, None):
        yield _figure("numerics", "accuracy", pair, figures.percent, 0.0, rising=True)
    for dtype in sorted({*first.manifest.tolerances, *second.manifest.tolerances}):
        kept = [s.manifest.tolerances.get(dtype) for s in (first, second)]
        words = [_NOTHING if t is None else figures.error(t.absolute) for t in kept]
        yield _fact("numerics", f"tolerance of {dtype}", words[0], words[1])


def _latency(first: Side, second: Side) -> Iterator[Difference]:
    """Beside eager's, which was measured in turns with each: times of two days do not compare."""
    a, b = _of_eager(first), _of_eager(second)
    slack = _SAME_TIME * max(a or 0.0, b or 0.0)
    yield _figure("latency", "over eager's", (a, b), lambda value: f"{value:.2f}", slack)
    medians = [
        None if s.report is None else summarise(s.report).artifact_ms for s in (first, second)
    ]
    written = [_NOTHING if m is None else figures.milliseconds(m) for m in medians]
    machines = {"" if s.report is None else s.report.validation.machine for s in (first, second)}
    what = "median" if len(machines) == 1 else "median, on two kinds of machine"
    yield _fact("latency", what, written[0], written[1])


def _sizes(first: Side, second: Side) -> Iterator[Difference]:
    yield _amount("size", "all files", first.manifest.size, second.manifest.size)
    names = [_roles(side.manifest) for side in (first, second)]
    for name in sorted({*names[0], *names[1]}):
        yield _amount("size", name, names[0].get(name), names[1].get(name))


def _roles(manifest: BundleManifest) -> dict[str, int]:
    return {place.replace("files.", ""): entry.bytes for place, entry in manifest.uses()}


def _graphs(first: Side, second: Side) -> Iterator[Difference]:
    nodes = [_last_nodes(side.report) for side in (first, second)]
    for program in sorted({*nodes[0], *nodes[1]}):
        pair = nodes[0].get(program), nodes[1].get(program)
        yield _figure("graph", f"nodes of {program}", pair, figures.thousands, 0.0)


def _last_nodes(report: ConversionReport | None) -> dict[str, int]:
    logs = () if report is None else report.passes
    return {log.program: log.records[-1].nodes_after for log in logs if log.records}


def _passes(first: Side, second: Side) -> Iterator[Difference]:
    counts = [_changes(side.report) for side in (first, second)]
    for name in dict.fromkeys([*counts[0], *counts[1]]):
        words = [figures.count(c[name], "change") if name in c else "did not run" for c in counts]
        yield _fact("passes", name, words[0], words[1])


def _changes(report: ConversionReport | None) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for log in () if report is None else report.passes:
        for record in log.records:
            found[record.name] += len(record.changes)
    return found


def _kernels(first: Side, second: Side) -> Iterator[Difference]:
    reports = [side.report for side in (first, second)]
    loops = [None if r is None else sum(p.generated_kernels for p in r.lowering) for r in reports]
    yield _figure("kernels", "generated", (loops[0], loops[1]), figures.thousands, 0.0)
    symbols = [{s for p in side.manifest.programs for s in p.symbols} for side in (first, second)]
    for name in sorted(symbols[0] ^ symbols[1]):
        words = ["imported" if name in each else _NOTHING for each in symbols]
        yield _fact("kernels", name, words[0], words[1])


def _provenance(first: Side, second: Side) -> Iterator[Difference]:
    one, other = first.manifest, second.manifest
    yield _fact("provenance", "build", one.build_key[:12], other.build_key[:12])
    yield _fact("provenance", "created", figures.moment(one.created), figures.moment(other.created))
    yield _fact("provenance", "platform", one.platform, other.platform)
    yield _fact("provenance", "state", one.state.value, other.state.value)
    yield _fact("provenance", "source", one.source, other.source)
    yield _fact("provenance", "licence", one.licence, other.licence)
    seeds = [
        "of the source" if m.random_weights is None else f"random, seed {m.random_weights}"
        for m in (one, other)
    ]
    digests = [m.weights.sha256[:12] for m in (one, other)]
    yield _fact("provenance", "weights", f"{digests[0]} ({seeds[0]})", f"{digests[1]} ({seeds[1]})")
    for name in sorted({*one.versions, *other.versions}):
        before, after = one.versions.get(name, _NOTHING), other.versions.get(name, _NOTHING)
        yield _fact("provenance", name, before, after)


def _fact(section: str, what: str, before: str, after: str) -> Difference:
    change = Change.SAME if before == after else Change.OTHER
    return Difference(section, what, before, after, change)


def _amount(section: str, what: str, before: int | None, after: int | None) -> Difference:
    slack = max(_SAME_BYTES, _SAME_SHARE * max(before or 0, after or 0))
    return _figure(section, what, (before, after), figures.size, slack)


def _figure(
    section: str,
    what: str,
    pair: tuple[T | None, T | None],
    written: Callable[[T], str],
    slack: float,
    *,
    rising: bool = False,
) -> Difference:
    """A figure that is better when it falls, or rises; equal when both are nearer than `slack`."""
    before, after = pair
    words = [_NOTHING if value is None else written(value) for value in pair]
    return Difference(section, what, words[0], words[1], _judged(before, after, slack, rising))


def _judged(before: float | None, after: float | None, slack: float, rising: bool) -> Change:
    if before == after:
        return Change.SAME
    if before is None or after is None:
        return Change.OTHER
    if abs(after - before) <= slack:
        return Change.SAME
    return Change.BETTER if (after > before) == rising else Change.WORSE


def _snr(side: Side) -> float | None:
    return None if side.report is None else side.report.worst_snr_db


def _accuracy(side: Side) -> float | None:
    """Of the accuracy gate; of speech, one minus its rate of wrong words."""
    if side.report is None:
        return None
    found = side.report.validation
    if found.accuracy is not None:
        return found.accuracy.artifact
    return min((1 - each.rate for each in found.word_errors), default=None)


def _timed(side: Side) -> dict[str, list[dict[str, int]]]:
    """The sizes at which each program was timed."""
    programs = () if side.report is None else side.report.validation.programs
    return {
        p.program: [dict(c.dimensions) for c in p.cases if c.case == p.latency.case]
        for p in programs
        if p.latency is not None
    }


def _of_eager(side: Side) -> float | None:
    if side.report is None or side.report.validation.emulated:
        return None
    return summarise(side.report).ratio
