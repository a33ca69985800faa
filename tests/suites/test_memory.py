"""What watches memory sees a fault in generated code, and none in what is published."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.suites.memory import Memory, environment

_ROOT = Path(__file__).parents[2]
# Torch's own tiles store more bytes than a row has (`_Tiles` of `lowering/cpp_codegen.py`).
_CONVERT = """
import sys, torch
from tests.suites import memory
from transforms import convert
from transforms.lowering import cpp_codegen
memory.keep()
if sys.argv[1] == "torch's":
    del cpp_codegen._Tiles.store
class Transposed(torch.nn.Module):
    def forward(self, x, y):
        return (x == y).t().contiguous(), x + y
x = torch.zeros(24, 20, dtype=torch.uint8)
convert(Transposed(), (x, x.clone()), out=sys.argv[2], measure_seconds=0)
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("tiles", "faulty"), [("torch's", True), ("ours", False)])
def test_a_store_beyond_a_buffer_is_seen(tiles: str, faulty: bool, tmp_path: Path) -> None:
    """Torch's own tile has the fault, and ours has none: the proof's worker ends, or does not.

    An environment goes round a door: no command of the product compiles with a sanitizer.
    """
    with TemporaryDirectory(dir=sys.prefix) as folder:
        ended = subprocess.run(
            [sys.executable, "-c", _CONVERT, tiles, str(tmp_path / "out")],
            cwd=_ROOT,
            env=os.environ | environment(Memory.ADDRESS, Path(folder)),
            capture_output=True,
            text=True,
            check=False,
        )
    assert ("exit code 97" in ended.stderr) == faulty, ended.stderr
    assert (ended.returncode != 0) == faulty
