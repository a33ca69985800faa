"""The way to the store breaks in the middle of a run: rows say so, and the next run completes."""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prefect.testing.utilities import prefect_test_harness

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))

from forwarder import Forwarder
from heavy import MIB, load_with_weights
from swift_server import ACCESS_KEY, SECRET_KEY, SwiftServer
from toy_cluster import ENTRY
from toy_zoo import ToyModel, toy_judgement

from flows.convert import convert_zoo
from flows.parameters import ConversionOptions
from flows.results import Listener
from flows.services import Services, use_services
from tasks.prove import prove
from transforms.stages import Stage
from zoo.processes import OWN_STORE
from zoo.store import open_store
from zoo.store.s3 import S3Objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.results import ModelResult
    from tasks.job import Job, StageRecords
    from transforms.stages import LowerRecord
    from zoo.records import ConversionReport

pytestmark = pytest.mark.faults

WEIGHTS = 11 * MIB  # three parts


class Heavy(ToyModel):
    """Toys whose weights travel in parts."""

    def lower(self) -> LowerRecord:
        """A bundle with weights of its own."""
        record = super().lower()
        load_with_weights(self._job, WEIGHTS // MIB)
        return record


def toys() -> Services:
    """Heavy toys; the seal and the store are real."""

    def toy_prove(job: Job, records: StageRecords) -> ConversionReport:
        return prove(job, records, judge=lambda *_, **__: toy_judgement())

    return Services(hold=Heavy, instead={Stage.VALIDATE: toy_prove})


@pytest.fixture(scope="module", autouse=True)
def prefect() -> Iterator[None]:
    """An API in this process."""
    with prefect_test_harness(server_startup_timeout=180):
        yield


@pytest.fixture(scope="module")
def starter() -> Iterator[ThreadPoolExecutor]:
    """A thread that lives as long as the servers: they end with the thread that started them."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def way(swift: SwiftServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Forwarder]:
    """The way to the server, which a test may cut; the environment points to it."""
    with Forwarder(swift.ports["http"]) as forwarder:
        values = {
            "MENAGERIE_HOME": str(tmp_path / "home"),
            OWN_STORE: f"s3://zoo/{tmp_path.name}",  # so that a run signs what it publishes
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{forwarder.port}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_MAX_ATTEMPTS": "2",
        }
        monkeypatch.setattr(S3Objects, "part_bytes", 5 * MIB)
        monkeypatch.setattr(S3Objects, "concurrency", 1)
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        yield forwarder


@pytest.fixture
def options(tmp_path: Path) -> ConversionOptions:
    """Two toys, and a prefix of this test's in the bucket."""
    folder = tmp_path / "manifest"
    folder.mkdir()
    entries = [ENTRY.format(name=n, summary="fine", targets="cpu") for n in ("ant", "bee")]
    (folder / "toys.yaml").write_text("version: 1\nfamily: toys\nmodels:" + "".join(entries))
    store = f"s3://zoo/{tmp_path.name}"
    return ConversionOptions(random_weights=0, manifest=str(folder), store=store)


def convert(options: ConversionOptions) -> dict[str, ModelResult]:
    """The rows of a run by model."""
    recorder = Listener()
    place = toys()
    with use_services(dataclasses.replace(place, listener=recorder)):
        convert_zoo(options=options, return_state=True)
    return {model: row for (model, _), row in recorder.rows.items()}


def whole(options: ConversionOptions) -> list[str]:
    """What is published, every file of it there."""
    store = open_store(options.store)
    found = store.releases()
    assert all(store.held([release.names]) for release in found)
    return [release.model for release in found]


def outcomes(rows: dict[str, ModelResult]) -> dict[str, str]:
    """How each ended."""
    return {model: str(row.outcome) for model, row in rows.items()}


def test_a_reset_in_the_middle_of_a_file_costs_a_retry(
    way: Forwarder, options: ConversionOptions
) -> None:
    """The connection breaks after seven megabytes: the parts that arrived are kept."""
    way.cuts["up"] = [(7 * MIB, lambda: None)]
    assert set(outcomes(convert(options)).values()) == {"published"}
    assert whole(options) == ["ant", "bee"]
    files_and_archives = 2 * WEIGHTS * 2  # of two models
    assert way.sent["up"] < files_and_archives + 8 * MIB


def test_a_server_killed_in_the_middle_of_a_file_that_comes_back(
    way: Forwarder,
    swift: SwiftServer,
    options: ConversionOptions,
    starter: ThreadPoolExecutor,
) -> None:
    """Killed by SIGKILL and started again on its data: the parts that it had are kept."""

    def fall_and_rise() -> None:
        swift.kill()
        starter.submit(swift.start).result()

    way.cuts["up"] = [(7 * MIB, fall_and_rise)]
    rows = convert(options)
    assert set(outcomes(rows).values()) == {"published"}, [r.reason for r in rows.values()]
    assert whole(options) == ["ant", "bee"]


def test_a_server_that_stays_away_fails_its_models_alone(
    way: Forwarder, swift: SwiftServer, options: ConversionOptions
) -> None:
    """Rows with what and where, nothing half published; then the next run completes."""
    way.cuts["up"] = [(7 * MIB, swift.kill)]
    try:
        rows = convert(options)
    finally:
        swift.start()
    assert set(outcomes(rows).values()) == {"failed"}
    assert "127.0.0.1" in (rows["ant"].reason or "")
    assert whole(options) == []
    assert set(outcomes(convert(options)).values()) == {"published"}
    assert whole(options) == ["ant", "bee"]
