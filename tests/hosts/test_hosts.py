"""More than one host: a server with its store, workers and a desk, joined by the README's steps.

Conversions, services and keys are real; the hosts are namespaces of one machine's kernel. The tests
share the installation and ask for nothing that another one leaves.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hosts import BIN, STATE, Host
from team import Team

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.hosts

MODEL = "digits_cnn"
CLOCK = Path(__file__).parents[1] / "faults" / "skewed_clock.c"
MINUTE = 60  # a host that is behind takes runs so much later, one ahead is missed so much later
CONVERSION_SECONDS = 900.0


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """The server, the store and the desk; keys to sign with are on the desk alone."""
    made = Team(tmp_path_factory.mktemp("team"))
    try:
        made.found()
        made.zoo("keys", "init")
        yield made
    finally:
        made.network.close()


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that puts the clock of a process wrong."""
    compiler = shutil.which("cc")
    assert compiler is not None
    library = tmp_path_factory.mktemp("clock") / "skewed_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, CLOCK], check=True)
    return library


def host_with_clock(team: Team, name: str, clock: Path, seconds: int) -> Host:
    """A host whose clock is so much ahead."""
    preload = {"LD_PRELOAD": str(STATE / clock.name), "SKEW_SECONDS": str(seconds)}
    host = team.network.add(name, **preload)
    shutil.copy(clock, host.folder)
    return host


def at_work(team: Team) -> list[str]:
    """The stages that are under way."""
    wanted = {"task_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    return [run["name"] for run in team.ask("POST", "/task_runs/filter", wanted)]


def row(team: Team, name: str) -> dict[str, Any]:
    """The one row of a conversion that was started at the desk, when it has ended."""
    code = team.desk.processes[name].wait(CONVERSION_SECONDS)
    said = team.desk.log(name).read_text()
    assert code == 0, said[-3000:]
    [found] = json.loads(said[said.index("{") :])["results"]
    return dict(found)


def test_a_host_that_is_cut_off_is_done_without_and_comes_back(team: Team, clock: Path) -> None:
    """East is two minutes ahead and loses its cable while it lowers; West, one behind, does it.

    Plugged in again, East takes what comes next, and what it had begun harms nothing.
    """
    east = host_with_clock(team, "east", clock, 2 * MINUTE)
    west = host_with_clock(team, "west", clock, -MINUTE)
    team.add_worker(east)
    environment = team.settings(team.desk, "promoter")
    team.desk.start("convert", [str(BIN / "zoo"), "convert", MODEL, "--json"], **environment)
    team.until(lambda: any("lower" in name for name in at_work(team)), "East lowers it")
    east.pull_cable()
    team.add_worker(west)
    done = row(team, "convert")
    assert (done["outcome"], done["proof"]) == ("published", "validated")
    [run] = team.runs("convert-batch")
    assert (run["state_name"], run["run_count"]) == ("Completed", 2)
    team.until(lambda: team.online("linux-cpu") == ["west linux-cpu"], "East is missed")

    east.plug_in()
    team.until(lambda: "east linux-cpu" in team.online("linux-cpu"), "East has a heartbeat again")
    said = east.log("linux-cpu")
    team.until(lambda: "gives way" in said.read_text(), "East leaves it to West", 600)
    west.kill("linux-cpu")
    begun = east.log("linux-cpu").read_text().count("submitting flow run")
    team.desk.start(
        "again", [str(BIN / "zoo"), "convert", MODEL, "--force", "--json"], **environment
    )
    assert row(team, "again")["outcome"] == "proven anew"
    assert east.log("linux-cpu").read_text().count("submitting flow run") > begun
    states = [run["state_name"] for run in team.runs("convert-batch")]
    assert states == ["Completed", "Completed"]
    east.kill("linux-cpu")


def test_a_mac_elsewhere_confirms_and_a_reader_pulls(team: Team) -> None:
    """Converted on one host, confirmed on another, signed at the desk, pulled by a reader's key."""
    north, south = team.network.add("north"), team.network.add("south")
    team.add_worker(north)
    said = json.loads(team.zoo("convert", MODEL, "--target", "metal", "--json"))
    [made] = said["results"]
    assert made["proof"] == "emulated"
    team.add_worker(south, "macos-metal")
    deployment = team.ask("GET", "/deployments/name/confirm-releases/confirm-releases")["id"]
    team.ask("POST", f"/deployments/{deployment}/create_flow_run", {})

    def confirmed() -> bool:
        states = [run["state_name"] for run in team.runs("confirm-releases")]
        return states.count("Completed") == 1

    team.until(confirmed, "South has confirmed it", CONVERSION_SECONDS)
    assert "submitting flow run" in south.log("macos-metal").read_text()
    south.kill("macos-metal")
    team.zoo("promote", MODEL, "--target", "metal")
    away = team.network.add("away")
    shutil.copy(team.desk.folder / "home" / "keys" / "root.json", away.folder)
    reader = team.settings(away, "reader")
    for words in (
        ["trust", str(STATE / "root.json")],
        ["pull", MODEL, "--target", "metal", "--output", str(STATE / "pulled")],
    ):
        done = away.run(str(BIN / "menagerie"), *words, **reader)
        assert done.returncode == 0, done.stderr
    assert (away.folder / "pulled" / "manifest.json").is_file()
