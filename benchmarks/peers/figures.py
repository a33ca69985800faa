"""Tables and a plot of what contenders took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.peers.environments import OWN, Contender
from benchmarks.svg import line, rect, text
from menagerie.figures import milliseconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.comparison import Conversion, Latency, Start


def latency_table(rows: Sequence[Latency]) -> str:
    """Shares of eager's least time, and ours of the best peer's; a line a number of threads."""
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
    """A line a fresh process."""
    lines = ["| model | process | seconds | processor | peak memory |", "|---|---|---:|---:|---:|"]
    for row in rows:
        times = f"{row.seconds:.2f} | {row.processor_seconds:.2f}"
        lines.append(f"| `{row.model}` | {row.contender} | {times} | {size(row.peak_bytes)} |")
    return "\n".join(lines)


def conversions_table(rows: Sequence[Conversion]) -> str:
    """A line a conversion."""
    lines = ["| model | for | seconds | why not |", "|---|---|---:|---|"]
    lines += [f"| `{r.model}` | {r.contender} | {r.seconds:.1f} | {r.failure} |" for r in rows]
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> float:
    """Geometric; NaN of those without a peer."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def peers_plot(rows: Sequence[Latency]) -> str:
    """Bars a model: each contender's least time as a share of eager's, as SVG."""
    models = list(dict.fromkeys(row.model for row in rows))
    kinds = [kind for kind in Contender if kind is not Contender.EAGER]
    kinds = [kind for kind in kinds if any(row.contender is kind for row in rows)]
    eager = {row.model: row.minimum_ms for row in rows if row.contender is Contender.EAGER}
    left, wide, bar = 190, 420, 9
    step = bar * len(kinds) + 10
    scale = wide / max(1.2, *(row.minimum_ms / eager[row.model] for row in rows))
    bottom = 30 + step * len(models)
    parts = [line(left + scale, 20, left + scale, bottom, "eager")]
    parts.append(text(left + scale + 4, 16, "eager PyTorch"))
    for place, model in enumerate(models):
        top = 30 + place * step
        parts.append(text(left - 8, top + step / 2, model, anchor="end"))
        for row in rows:
            if row.model == model and row.contender in kinds:
                number = kinds.index(row.contender)
                share = row.minimum_ms / eager[model]
                parts.append(rect(left, top + number * bar, share * scale, bar - 1, f"c{number}"))
                parts.append(text(left + share * scale + 4, top + number * bar + 8, f"{share:.2f}"))
    for number, kind in enumerate(kinds):
        parts.append(rect(left + number * 110, bottom + 10, 10, 10, f"c{number}"))
        parts.append(text(left + number * 110 + 14, bottom + 19, kind))
    colours = ("#b3402a", "#2a6fb3", "#6fa8dc", "#3d7a3d", "#d98c4a", "#8a5fa8")
    style = "text { font: 10px sans-serif } .eager { stroke: #888; stroke-dasharray: 3 }" + "".join(
        f" .c{number} {{ fill: {colour} }}" for number, colour in enumerate(colours)
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 60} {bottom + 34}">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, f"<style>{style}</style>", ground, *parts, "</svg>"]) + "\n"
