"""Prefect's UI in a browser, as a model engineer uses it: form, run, report, download."""

from __future__ import annotations

import json
import time
import zipfile
from typing import TYPE_CHECKING

import pytest
from browsers import picture
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from pathlib import Path

    from owner import Cluster

pytestmark = pytest.mark.ui

MODEL = "digits_cnn"
RUN_SECONDS = 600


def open_form(cluster: Cluster, page: Page) -> None:
    """The form of convert-model."""
    deployment = cluster.ask("/deployments/name/convert-model/convert-model")["id"]
    page.goto(f"{cluster.url}/v2/deployments/deployment/{deployment}/run")
    page.get_by_role("button", name="Select model").wait_for()


def submitted(cluster: Cluster) -> list[str]:
    """The runs of convert-model that the dashboard would count."""
    found = cluster.prefect("flow-run", "ls", "--flow-name", "convert-model", "--output", "json")
    return [run["name"] for run in json.loads(found)]


def test_a_bad_value_is_stopped(cluster: Cluster, page: Page) -> None:
    """No threads and no model: the form says so, and nothing is submitted."""
    open_form(cluster, page)
    assert page.get_by_text("Property is type").count() == 0
    assert page.get_by_label("Threads").count() == 0, "folded, as rare options are"
    picture(page, "form")
    page.get_by_role("tab", name="All", exact=True).click()
    threads = page.get_by_label("Threads").first
    threads.fill("0")
    page.get_by_role("button", name="Submit").click()
    assert "greater than or equal to 1" in threads.evaluate("field => field.validationMessage")
    picture(page, "form-refused")
    threads.fill("1")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("'model' is a required property", exact=True)).to_be_visible()
    assert page.url.endswith("/run")
    assert submitted(cluster) == []


def start(cluster: Cluster, page: Page) -> str:
    """Fill in the form for the model, submit it, and go to the run's page; its id."""
    open_form(cluster, page)
    page.get_by_role("button", name="Select model").click()
    page.get_by_role("option", name=MODEL, exact=True).click()
    with page.expect_response(lambda it: it.url.endswith("/create_flow_run")) as answer:
        page.get_by_role("button", name="Submit").click()
    page.wait_for_url(lambda url: not url.endswith("/run"))
    run = str(answer.value.json()["id"])  # scheduled ones may be above it in the list
    page.goto(f"{cluster.url}/v2/runs/flow-run/{run}")
    return run


def state_of(cluster: Cluster, page: Page, run: str, *wanted: str) -> str:
    """The state of a run once it is one of those that are wanted."""
    end = time.monotonic() + RUN_SECONDS
    while (state := str(cluster.ask(f"/flow_runs/{run}")["state_type"])) not in wanted:
        assert time.monotonic() < end, state
        page.wait_for_timeout(1000)
    return state


def test_a_run_is_cancelled_by_its_button(cluster: Cluster, page: Page) -> None:
    """It ends cancelled, by its worker, and nothing is published."""
    run = start(cluster, page)
    assert state_of(cluster, page, run, "RUNNING", "COMPLETED") == "RUNNING"
    page.reload()
    page.get_by_role("button", name="Open menu").click()
    page.get_by_role("menuitem", name="Cancel").click()
    page.get_by_role("button", name="Cancel Flow Run").click()
    assert state_of(cluster, page, run, "CANCELLED", "COMPLETED") == "CANCELLED"
    assert json.loads(cluster.zoo("show", MODEL, "--json"))["releases"] == []


def test_a_model_is_converted_and_its_report_followed(
    cluster: Cluster, page: Page, tmp_path: Path
) -> None:
    """Chosen from the list, run by a worker, finished; the links lead to report and library."""
    run = start(cluster, page)
    assert state_of(cluster, page, run, "COMPLETED", "FAILED") == "COMPLETED"
    page.reload()
    expect(page.get_by_text(f"{MODEL} for cpu", exact=True).first).to_be_visible()
    expect(page.get_by_text("publish: done in").first).to_be_visible()  # of the log
    picture(page, "run")
    page.get_by_role("tab", name="Artifacts").click()
    picture(page, "artifacts")
    page.get_by_role("link").filter(has_text=f"{MODEL.replace('_', '-')}-cpu-report").click()
    page.locator("main a[href*='/artifacts/artifact/']").first.click()
    report = page.get_by_role("link", name=f"Report of {MODEL} for cpu")
    address = report.first.get_attribute("href") or ""
    assert address.startswith("http://127.0.0.1:")
    page.goto(address)
    expect(page.get_by_role("heading", name=MODEL)).to_be_visible()
    with page.expect_download() as download:
        page.evaluate("address => { location.href = address }", _archive(cluster, run))
    download.value.save_as(tmp_path / "release.zip")
    with zipfile.ZipFile(tmp_path / "release.zip") as archive:
        assert archive.read("programs/main/model.so")[:4] == b"\x7fELF"


def _archive(cluster: Cluster, run: str) -> str:
    """The address of the release's zip file in the run's page."""
    found = cluster.ask(f"/artifacts/{MODEL.replace('_', '-')}-cpu/latest")
    [line] = [each for each in found["data"].splitlines() if "as one zip file](" in each]
    return str(line.partition("as one zip file](")[2].partition(")")[0])
