"""How many threads a run uses whose caller does not say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="counts threads as Linux lists them"
)

# Threads that computed once stay with their process.
_PROGRAM = """
import json, os, sys
import numpy as np
import menagerie
folder, threads, processors = json.loads(sys.argv[1])
if processors:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
count = lambda: len(os.listdir("/proc/self/task"))
with menagerie.open(folder, threads=threads) as session:
    before = count()
    (spec,) = session.inputs
    feed = {spec.name: np.ones(spec.shape, np.float32)}
    first, second = (list(session.run(feed).values())[0].tobytes() for _ in range(2))
assert first == second
print(count() - before)
"""


def _network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, 64), nn.Softmax(-1))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Bundles of little work and of much."""
    made = {}
    for name, width in (("little", 256), ("much", 8192)):
        out = tmp_path_factory.mktemp("bundles") / name
        inputs = (torch.randn(16, 64),)
        made[name] = convert(_network(width).eval(), inputs, out=out, measure_seconds=0).folder
    return made


def _made_threads(folder: Path, threads: int | None, processors: int | None = None) -> int:
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([str(folder), threads, processors])],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(said.stdout)


def test_little_work_is_not_shared_out(folders: dict[str, Path]) -> None:
    """One thread computes it, unless the caller wants several."""
    assert _made_threads(folders["little"], None) == 0
    assert _made_threads(folders["little"], 3) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_much_work_is_shared_out_to_the_processors(folders: dict[str, Path]) -> None:
    """A thread for each that the process may use, and no more."""
    assert 0 < _made_threads(folders["much"], None) < len(os.sched_getaffinity(0))
    assert _made_threads(folders["much"], None, processors=1) == 0
