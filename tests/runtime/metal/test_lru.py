"""The bounded cache of graphs, compiled for this host: the Apple device keeps its MPSGraphs so."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3] / "runtime"


def test_cache_is_bounded_and_keyed_by_the_whole_descriptor(tmp_path: Path) -> None:
    """The least recently used goes first, and no two descriptors that differ share an entry."""
    program = tmp_path / "lru_check"
    source = Path(__file__).with_name("lru_check.cpp")
    compiler = shutil.which("c++") or "g++"
    subprocess.run(
        [compiler, "-std=c++20", f"-I{ROOT}", str(source), "-o", str(program)], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0
