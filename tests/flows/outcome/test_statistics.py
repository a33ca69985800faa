"""What conversions cost and how they went is added up as it was written down."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import published
from prometheus_client.parser import text_string_to_metric_families

from flows.cli import invoke
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

DASHBOARD = Path(__file__).parents[3] / "infra" / "grafana" / "menagerie.json"


def event(kind: str, when: datetime, **more: object) -> Mapping[str, object]:
    """A line of the machine's events."""
    fields = {"event": kind, "model": "ant", "target": "cpu", "time": when.isoformat()}
    return {**fields, "outcome": "done", "seconds": 1.0, **more}


@pytest.fixture
def store(own_home: Path, tmp_path: Path) -> str:
    """Three stages and four models in two weeks, one of them long ago; a store of two builds."""
    now = datetime.now(UTC)
    last = now - timedelta(weeks=1)
    lines = [
        event("stage", last, stage="lower", seconds=10.0, processor_seconds=18.0),
        event("stage", now, stage="lower", seconds=20.0, processor_seconds=22.0),
        event("stage", now, stage="pull", seconds=2.0),
        event("model", last, outcome="published"),
        event("model", now, outcome="skipped"),
        event("model", now, outcome="failed"),
        event("model", now - timedelta(weeks=20), outcome="crashed"),
        event("stage", now - timedelta(weeks=20), stage="lower", processor_seconds=1e6),
    ]
    log = own_home / "logs" / "events-2030-01.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"half a li')
    made = open_store(str(tmp_path / "store"))
    published(made, tmp_path / "made", "aa", 10)
    published(made, tmp_path / "made", "bb", 11)
    return str(tmp_path / "store")


def statistics(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What the command says as JSON."""
    assert invoke(["stats", *arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_costs_and_outcomes_are_added_up(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    """By model, target and stage, and by week; what is older than asked for is left out."""
    found = statistics(capfd, "--store", store, "--local")
    assert {
        s["stage"]: (s["times"], s["seconds"], s["processor_seconds"]) for s in found["stages"]
    } == {
        "lower": (2, 30.0, 40.0),
        "pull": (1, 2.0, 0.0),
    }
    assert [week["outcomes"] for week in found["weeks"]] == [
        {"published": 1},
        {"skipped": 1, "failed": 1},
    ]
    [week] = found["store"]
    releases = open_store(store).releases()
    files = {e.sha256: e.bytes for r in releases for e in r.manifest.listed.values()}
    assert week["releases"] == 2
    assert week["bytes"] == sum(files.values()) + sum(len(r.document) for r in releases)


def test_a_person_sees_shares_and_bars(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Half of this week's succeeded: half a bar."""
    assert invoke(["stats", "--store", store, "--local"]) == 0
    shown = capfd.readouterr().out
    assert re.search(r"50% +█{20} +1 failed, 1 skipped", shown)
    assert re.search(r"100% +█{40} +1 published", shown)
    assert re.search(r"lower +2 +40 s +30 s +█{40}", shown)


def test_the_dashboard_asks_for_what_is_exported(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Prometheus's own parser reads the metrics; every expression names one with its labels."""
    assert invoke(["stats", "--store", store, "--local", "--prometheus"]) == 0
    families = list(text_string_to_metric_families(capfd.readouterr().out))
    samples = {s.name: s for family in families for s in family.samples}
    assert samples["menagerie_store_releases"].value == 2
    names = {family.name for family in families} | set(samples)
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        [target] = panel["targets"]
        for name in re.findall(r"menagerie_\w+", target["expr"]):
            assert name in names, panel["title"]
            if name in samples:
                by = re.findall(r"by \((\w+)\)", target["expr"])
                assert set(by) <= set(samples[name].labels), panel["title"]
