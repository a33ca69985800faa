"""A user's own model, as its owner sees it: submitted, refused, mailed, allowed, published."""

from __future__ import annotations

import html
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsers import picture
from mail_server import Inbox, receiving
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from owner import Cluster

pytestmark = pytest.mark.ui

MAIL_SECONDS = 120
BUILDER = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
"""
ENTRY = """
version: 1
family: Mine
models:
  my_net:
    summary: Two layers
    source: {kind: factory, builder: "net:make"}
    programs:
      - inputs: [{name: input, shape: [1, 8]}]
        outputs: [logits]
    targets: [cpu]
    licence: {spdx: Apache-2.0}
"""


@pytest.fixture(scope="module")
def inbox() -> Iterator[Inbox]:
    """The owner's."""
    with receiving() as taking:
        yield taking


@pytest.fixture(scope="module")
def settings(inbox: Inbox) -> dict[str, str]:
    """Those of an owner who is notified of failures by mail."""
    return {"MENAGERIE_NOTIFY": inbox.address}


def test_a_users_own_model_goes_the_whole_way(
    cluster: Cluster, page: Page, inbox: Inbox, tmp_path: Path
) -> None:
    """Its folder is gone when workers ask for it; its code runs once the operator says so."""
    folder = tmp_path / "my_models"
    folder.mkdir()
    (folder / "net.py").write_text(BUILDER)
    (folder / "mine.yaml").write_text(ENTRY)
    digest = json.loads(cluster.zoo("submit", str(folder), "--json"))["manifest"]
    shutil.rmtree(folder)

    said = json.loads(cluster.zoo("convert", "my_net", "--json", code=1))
    [refused] = said["results"]
    assert refused["outcome"] == "failed"
    assert f"{digest} to " in refused["reason"]
    assert "--allow-factories" not in refused["reason"]
    page.goto(refused["page"])
    expect(page.get_by_text(digest).first).to_be_visible()
    assert page.get_by_text("Traceback").count() == 0, "a refusal is nothing to debug"
    picture(page, "failed")
    end = time.monotonic() + MAIL_SECONDS
    while not inbox.mails:
        assert time.monotonic() < end, "no mail"
        page.wait_for_timeout(500)
    [mail] = inbox.mails
    text = mail.get_body(("html",)).get_content()
    head = "".join(
        f"<p>{name}: {html.escape(mail[name])}</p>" for name in ("From", "To", "Subject")
    )
    style = (
        "<style>body {font: 15px sans-serif} td, th {border: 1px solid #ccc; padding: 4px}</style>"
    )
    page.goto("about:blank")  # what was there before allows no styles but its own
    page.set_content(f"{style}{head}<hr>{text}")
    expect(page.get_by_text("1 failed").first).to_be_visible()
    expect(page.get_by_text("/runs/flow-run/").first).to_be_visible()
    picture(page, "message")

    with Path(refused["reason"].rpartition(f"{digest} to ")[2]).open("a") as file:
        file.write(f"{digest}\n")  # the worker goes on
    [made] = json.loads(cluster.zoo("convert", "my_net", "--json"))["results"]
    assert (made["outcome"], made["proof"]) == ("published", "validated")
    cluster.zoo("pull", "my_net", "--output", str(tmp_path / "pulled"))
    pulled = json.loads((tmp_path / "pulled" / "manifest.json").read_text())
    assert pulled["build_key"] == made["build_key"]
