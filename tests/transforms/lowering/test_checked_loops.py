"""An index that is out of bounds fails its run, as in eager, and nothing but its run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch._inductor.codegen.cpp import CppScheduling

from transforms.bisect.piece import lower_piece
from transforms.lowering.cpu import BACKEND
from transforms.lowering.fallback_kernels import CheckedWrapper
from transforms.lowering.inductor import Backend, generate_code

if TYPE_CHECKING:
    from pathlib import Path

ROWS, WIDTH = 100, 64

SCRIPT = """
import sys
import numpy as np
from menagerie.session import Session
from zoo.errors import SessionError

good = np.arange(64, dtype=np.int64).reshape(4, 16)
bad = good.copy()
bad[2, 3] = int(sys.argv[3])
with Session(sys.argv[1], threads=int(sys.argv[2])) as session:
    for _ in range(3):
        try:
            session.run({"input_0": bad})
        except SessionError as error:
            print(error)
        [output] = session.run({"input_0": good}).values()
        print(float(output.sum()))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedding whose row i holds the number i, and a sum over it: two kinds of loops."""
    table = torch.nn.Embedding(ROWS, WIDTH)
    with torch.no_grad():
        table.weight.copy_(torch.arange(ROWS).unsqueeze(1).expand(ROWS, WIDTH))
    ids = torch.arange(64).reshape(4, 16)
    program = torch.export.export(torch.nn.Sequential(table, torch.nn.ReLU()).eval(), (ids,))
    folder = tmp_path_factory.mktemp("checked") / "bundle"
    lower_piece(folder, program, [ids])
    return folder


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("index", [ROWS, -1, 2**40])
def test_a_bad_index_fails_only_its_run(bundle: Path, threads: int, index: int) -> None:
    """The process lives, the fact is told, and the next run is right: 64 columns of 0 to 63."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(bundle), str(threads), str(index)],
        capture_output=True,
        text=True,
        check=True,
    )
    told, results = done.stdout.splitlines()[::2], done.stdout.splitlines()[1::2]
    assert len(told) == 3
    assert all("index out of bounds" in line for line in told)
    assert [float(each) for each in results] == [64.0 * sum(range(64))] * 3


def test_kernels_without_checks_stay_as_they_are() -> None:
    """Nothing is put into loops that cannot throw."""
    program = torch.export.export(torch.nn.ReLU(), (torch.randn(8, 8),))
    options = {"aot_inductor.package": True, "cpp.vec_isa_ok": True, "cpp.simdlen": 256}
    torchs_own = Backend("cpu", CppScheduling, CheckedWrapper)
    expected = generate_code(program, options, torchs_own).kernels
    assert 'extern "C"' in expected
    assert generate_code(program, options, BACKEND).kernels == expected
