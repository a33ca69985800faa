"""Tables of the contenders' measurements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.peers.environments import OWN, Contender
from menagerie.figures import milliseconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.comparison import Conversion, Latency, Start


def latency_table(rows: Sequence[Latency]) -> str:
    """Return least times relative to eager's, and ours to the best peer's, by thread count."""
    peers = sorted({row.contender for row in rows} - set(OWN), key=list(Contender).index)
    lines = [
        "| model | threads | eager | ours | " + " | ".join(peers) + " | ours over the best |",
        "|---|---:|---:|---:|" + "---:|" * len(peers) + "---:|",
    ]
    ratios: dict[int, list[float]] = {}
    for model, threads in dict.fromkeys((row.model, row.threads) for row in rows):
        least = {
            row.contender: row.minimum_ms
            for row in rows
            if (row.model, row.threads) == (model, threads)
        }
        eager, ours = least[Contender.EAGER], least[Contender.ARTIFACT]
        shares = [f"{least[peer] / eager:.2f}" if peer in least else "-" for peer in peers]
        best = min((least[peer] for peer in peers if peer in least), default=math.nan)
        ratios.setdefault(threads, []).append(ours / best)
        cells = [f"`{model}`", str(threads), milliseconds(eager), f"{ours / eager:.2f}", *shares]
        lines.append("| " + " | ".join([*cells, f"{ours / best:.2f}"]) + " |")
    lines += [
        f"| geometric mean | {threads} | | |{' |' * len(peers)} {_mean(values):.2f} |"
        for threads, values in ratios.items()
    ]
    return "\n".join(lines)


def start_table(rows: Sequence[Start]) -> str:
    """Return a table with a row for each fresh process."""
    lines = ["| model | process | seconds | processor | peak memory |", "|---|---|---:|---:|---:|"]
    for row in rows:
        times = f"{row.seconds:.2f} | {row.processor_seconds:.2f}"
        lines.append(f"| `{row.model}` | {row.contender} | {times} | {size(row.peak_bytes)} |")
    return "\n".join(lines)


def conversions_table(rows: Sequence[Conversion]) -> str:
    """Return a table with a row for each conversion."""
    lines = ["| model | for | seconds | why not |", "|---|---|---:|---|"]
    lines += [f"| `{r.model}` | {r.contender} | {r.seconds:.1f} | {r.failure} |" for r in rows]
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean; NaN without peers."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
