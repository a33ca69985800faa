"""A cluster of a test's own, and its owner signed in."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browsers import PAGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

ZOO = Path(sys.executable).with_name("zoo")


class Cluster:
    """What `zoo cluster up` started; `environment`: what its owner has set."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "MENAGERIE"))}
        self.environment = {**kept, "MENAGERIE_HOME": str(home), **environment}
        state = json.loads(self.zoo("up", "--json"))
        self.url: str = state["ui"]
        kept = json.loads((home / "cluster" / "state.json").read_text())
        self.password: str = kept["api_auth"]

    def zoo(self, *arguments: str, code: int = 0) -> str:
        """Run a command that ends with that exit code."""
        done = subprocess.run(
            [ZOO, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True, check=False
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def prefect(self, *arguments: str) -> str:
        """Run a command of Prefect's own with the server's address and password."""
        server = {"PREFECT_API_URL": f"{self.url}/api", "PREFECT_API_AUTH_STRING": self.password}
        done = subprocess.run(
            [ZOO.with_name("prefect"), *arguments],
            env=self.environment | server,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    def ask(self, path: str) -> Any:
        """A question to Prefect's API."""
        word = base64.b64encode(self.password.encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.url}/api{path}", headers={"authorization": f"Basic {word}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)


@contextmanager
def signed_in(cluster: Cluster, browser: Browser) -> Iterator[Page]:
    """A browser that is signed in by the login page."""
    context = browser.new_context(viewport={"width": 1280, "height": 1600})
    opened = context.new_page()
    opened.set_default_timeout(PAGE_SECONDS * 1000)
    opened.goto(cluster.url)
    opened.locator("input").first.fill(cluster.password)
    opened.keyboard.press("Enter")
    opened.get_by_role("button", name="Logout").wait_for()
    try:
        yield opened
    finally:
        context.close()
