"""The same entry makes the same bytes: another process, home, folder, hash seed, number of cores.

Whole conversions, a minute of a processor each: `make test-all` runs them. `make test` compares one
library, in tests/runtime/test_session.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_maker import publish

from flows.parameters import ConversionOptions
from flows.plan import job_for, plan
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.format.folder import open_bundle, seal
from tasks.model_stages import ModelStages
from tasks.stage_table import EXPORT, LOWER, PULL, TRANSFORM
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.store import Release

MODEL = "digits_cnn"


pytestmark = pytest.mark.usefixtures("lent_home")


def published(store: str, *targets: str) -> Release:
    """What this process makes of the entry for the last target, after the others, as a release."""
    planned = plan([MODEL], targets, ConversionOptions(store=store))
    jobs = {one.target: job_for(one, ConversionOptions(store=store)) for one in planned}
    with ModelStages(jobs[targets[0]]) as model:
        for target in targets:
            job = jobs[target]
            model.switch_to(job)
            for stage in (PULL, EXPORT, TRANSFORM, LOWER):
                model.run(stage)
    seal(job.bundle, replace(open_bundle(job.bundle).manifest, state=ReleaseState.VALIDATED))
    return publish(open_store(store), job.bundle)


def rebuilt_elsewhere(store: str, target: str, place: Path, home_there: Path) -> None:
    """Another process makes it again, in another surrounding, and finds no difference."""
    place.mkdir()
    there = {
        "MENAGERIE_HOME": str(home_there),
        "TMPDIR": str(place),
        "PYTHONHASHSEED": "77",
        "OMP_NUM_THREADS": "1",
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": "C",
    }
    command = [Path(sys.executable).with_name("zoo"), "rebuild", MODEL, "-t", target, "--json"]
    platform = ["--platform", "metal-macos-arm64"] if target == "metal" else []
    done = subprocess.run(
        [*command, *platform, "--store", store],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=os.environ | there,
    )
    found = json.loads(done.stdout or "{}")
    assert (found.get("outcome"), found.get("detail")) == ("identical", ""), done.stderr


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["cpu", "metal"])
@pytest.mark.parametrize("warm", [True, False])
def test_another_process_makes_the_same_bytes(
    target: str, tmp_path: Path, lend_compiled: Callable[[Path], Path], *, warm: bool
) -> None:
    """Library, weights, shaders, goldens and manifest, in a longer folder than the first.

    What a home keeps of compilers is shared, or nothing of it: then headers and libc++ are compiled
    anew.
    """
    store = str(tmp_path / "store")
    published(store, target)
    elsewhere = tmp_path / "another home"
    if warm:
        lend_compiled(elsewhere)
    rebuilt_elsewhere(store, target, tmp_path / "a longer folder than the other", elsewhere)


@pytest.mark.sweep
def test_a_target_that_shares_pull_and_export_has_the_bytes_of_one_alone(
    tmp_path: Path, lend_compiled: Callable[[Path], Path]
) -> None:
    """Made after another one in this process, and rebuilt in one of its own."""
    store = str(tmp_path / "store")
    published(store, "cpu", "metal")
    elsewhere = lend_compiled(tmp_path / "another home")
    rebuilt_elsewhere(store, "metal", tmp_path / "elsewhere", elsewhere)
