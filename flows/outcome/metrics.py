"""The statistics as Prometheus reads them, for the textfile collector of its node exporter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from flows.outcome.statistics import Statistics

__all__ = ["prometheus_text"]


def prometheus_text(statistics: Statistics) -> str:
    """Metrics in Prometheus's text format; all names begin with `menagerie_`."""
    registry = CollectorRegistry()
    registry.register(_Collector(statistics))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks for them."""
        labels = ["model", "target", "stage"]
        seconds = GaugeMetricFamily(
            "menagerie_stage_seconds", "Wall seconds of a stage in the period", labels=labels
        )
        processor = GaugeMetricFamily(
            "menagerie_stage_processor_seconds", "Its processor seconds", labels=labels
        )
        for cost in self._statistics.stages:
            key = [cost.model, cost.target, cost.stage]
            seconds.add_metric(key, cost.seconds)
            processor.add_metric(key, cost.processor_seconds)
        yield from (seconds, processor)
        models = CounterMetricFamily(
            "menagerie_models", "Conversions in the period by outcome", labels=["outcome"]
        )
        ended: Counter[str] = Counter()
        for week in self._statistics.weeks:
            ended.update(week.outcomes)
        for outcome, count in sorted(ended.items()):
            models.add_metric([outcome], count)
        yield models
        median = GaugeMetricFamily(
            "menagerie_queue_seconds", "Median seconds that runs waited", labels=["flow"]
        )
        longest = GaugeMetricFamily(
            "menagerie_queue_longest_seconds", "The longest wait", labels=["flow"]
        )
        for queue in self._statistics.queue:
            median.add_metric([queue.flow], queue.median)
            longest.add_metric([queue.flow], queue.longest)
        yield from (median, longest)
        for size in self._statistics.store[-1:]:
            yield GaugeMetricFamily("menagerie_store_bytes", "Of the store", value=size.bytes)
            yield GaugeMetricFamily("menagerie_store_releases", "In it", value=size.releases)
