"""The script of the page for foreign clients works as it is printed there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from toy_cluster import AUTH

if TYPE_CHECKING:
    from toy_cluster import ToyCluster

pytestmark = pytest.mark.faults

PAGE = Path(__file__).parents[2] / "infra" / "API.md"


def script() -> str:
    """The page's one Python program."""
    [found] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def _run(program: str, options: object, cluster: ToyCluster) -> subprocess.CompletedProcess[str]:
    """Run a program of Python alone, as a client of the cluster's server."""
    server = {"PREFECT_API_URL": cluster.url, "PREFECT_API_AUTH_STRING": AUTH}
    return subprocess.run(
        [sys.executable, "-I", "-c", program, json.dumps(options)],
        capture_output=True, text=True, check=False, timeout=240,
        env={"PATH": os.environ["PATH"]} | server,
    )  # fmt: skip


def test_a_foreign_client_converts_and_reads_its_row(cluster: ToyCluster) -> None:
    """With Python alone, on a server with authentication and protection against forged requests."""
    assert len([line for line in script().splitlines() if line.strip()]) <= 30
    cluster.write_manifest(yak="fine", asp="segfaults")
    options = {"manifest": str(cluster.manifest), "store": cluster.store, "random_weights": 0}
    for model, line in (("yak", "yak cpu published"), ("asp", "asp cpu crashed")):
        done = _run(script(), {"model": model, "options": options}, cluster)
        assert line in done.stdout, done.stderr


def test_a_request_without_token_is_refused(cluster: ToyCluster) -> None:
    """As the page says: 403."""
    changed = script().replace('headers["Prefect-Csrf-Token"] =', "_ =")
    done = _run(changed, {}, cluster)
    assert f"{urllib.error.HTTPError.__name__}: HTTP Error 403" in done.stderr
