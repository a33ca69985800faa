"""The emulated device computes with as many threads of the host as it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from emulated_device import EmulatedDevice

# Threads that computed once stay with their process.
_PROGRAM = """
import os, sys
from pathlib import Path
import numpy as np
from emulated_device import EmulatedDevice
source, cache, size = sys.argv[1:]
device, values = EmulatedDevice(Path(cache)), np.arange(int(size), dtype=np.float32)
kernels, out = device.compile(Path(source).read_text()), device.buffer(values.nbytes)
kernels.run("add_one", [out, device.buffer(values)], [values.size], [32])
assert (out.read(np.float32) == values + 1).all()
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads where Linux lists them")
@pytest.mark.parametrize(("size", "threads"), [(64, 1), (4096, 3)])
def test_a_large_grid_is_shared_out(emulated: EmulatedDevice, size: int, threads: int) -> None:
    """To all three threads; a small one is not, since waking them would take longer."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, here / "kernels.metal", emulated.cache, str(size)],
        env={**os.environ, "PYTHONPATH": str(here), "OMP_NUM_THREADS": "3"}
        | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{threads}\n"
