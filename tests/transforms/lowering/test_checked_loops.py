"""An index out of range or a divisor of 0 fails its run by the model's line, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch._inductor.codegen.cpp import CppScheduling
from torch.nn import functional as F

from menagerie.session import Session
from transforms import convert
from transforms.lowering.cpp_codegen import CheckedWrapper
from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import Backend, generate_code
from zoo.errors import SessionError

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
            session.run({"input": bad})
        except SessionError as error:
            print(error)
        [output] = session.run({"input": good}).values()
        print(float(output.sum()))
"""

DIVISIONS = {
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor": lambda x, y: x // y,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}
DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Divisions(nn.Module):
    """Each division of each dtype by a row of its own, then some in places where loops differ."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        """Every result."""
        found = [
            divide(x.to(dtype), rows[i].to(dtype))
            for i, (dtype, divide) in enumerate(product(DTYPES, DIVISIONS.values()))
        ]
        padded = F.pad(x // rows[20], (3, 50))  # lanes that the mask hides hold 0
        behind_sum = x.sum() // rows[21].sum()
        by_number = 7 // rows[22, 0]
        return [*found, padded, behind_sum, by_number, x % 3]


@pytest.fixture(scope="module", params=["cpu", "metal"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedding whose row i holds the number i, and a sum over it: two kinds of loops."""
    table = nn.Embedding(ROWS, WIDTH)
    with torch.no_grad():
        table.weight.copy_(torch.arange(ROWS).unsqueeze(1).expand(ROWS, WIDTH))
    ids = torch.arange(64).reshape(4, 16)
    folder = tmp_path_factory.mktemp("checked") / "bundle"
    module = nn.Sequential(table, nn.ReLU()).eval()
    return convert(module, (ids,), target=request.param, out=folder, measure_seconds=0).folder


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("index", [ROWS, -1, 2**40])
def test_a_bad_index_fails_only_its_run(bundle: Path, threads: int, index: int) -> None:
    """The process lives, the place is given, and the next run is right: 64 columns of 0 to 63."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(bundle), str(threads), str(index)],
        capture_output=True,
        text=True,
        check=True,
    )
    given, results = done.stdout.splitlines()[::2], done.stdout.splitlines()[1::2]
    assert len(given) == 3
    assert all("an index is out of range: embedding, 0 (" in line for line in given)
    assert [float(each) for each in results] == [64.0 * sum(range(64))] * 3


class Scattered(nn.Module):
    """Places that kernels of the runtime write to: a row of many, rows of few, whole slices."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The largest, the product and the mean of what meets at a place."""
        row, few, slices = at[0], at[0, :4].repeat(9, 1), at[0, :4]
        return (
            x[0].scatter_reduce(0, row, x[1].repeat(4), "amax"),
            x.T.scatter_reduce(0, few.T[:, :3], x.T[:4, :3], "mean", include_self=False),
            x.T.index_reduce(0, slices, x.T[:4], "prod"),
        )


@pytest.mark.filterwarnings("ignore:index_reduce")  # is in beta, says torch
@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_a_place_that_a_kernel_cannot_write_fails_only_its_run(target: str, tmp_path: Path) -> None:
    """Nothing is written at the nearest place instead; the next run is eager's."""
    x, at = torch.randn(9, 32), torch.randint(0, 32, (1, 128))
    bundle = convert(Scattered(), (x, at), target=target, out=tmp_path / "b", measure_seconds=0)
    with Session(bundle.folder) as session:
        for wrong, where in ((32, 100), (-1, 1), (2**40, 0)):
            bad = at.clone()
            bad[0, where] = wrong
            with pytest.raises(SessionError, match=r"out of range|is not in axis 0"):
                session.run({"x": x.numpy(), "at": bad.numpy()})
            found = session.run({"x": x.numpy(), "at": at.numpy()}).values()
            for output, expected in zip(found, Scattered()(x, at), strict=True):
                torch.testing.assert_close(torch.from_numpy(output), expected)


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_a_division_by_zero_fails_only_its_run(target: str, tmp_path: Path) -> None:
    """The error names node, file and line; the next run is right, also the least number by -1."""
    x, rows = torch.arange(-20, 21), torch.arange(23 * 41).reshape(23, 41) % 100 + 1
    bundle = convert(Divisions(), (x, rows), target=target, out=tmp_path / "b", measure_seconds=0)
    with Session(bundle.folder) as session:

        def run(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
            found = session.run({"x": x.numpy(), "rows": rows.numpy()}).values()
            return [torch.from_numpy(each) for each in found]

        for row in range(len(rows)):
            bad = rows.clone()
            bad[row, :] = 0
            with pytest.raises(SessionError, match=r"divided by zero: \w+, model \(.*test_checked"):
                run(x, bad)
        least = torch.full_like(x, -(2**63))
        ones = torch.full_like(rows, -1)
        for given in ((x, rows), (-x, -rows)):
            for a, b in zip(run(*given), Divisions()(*given), strict=True):
                assert torch.equal(a, b)
        wrapped = run(least, ones)[:4]
        assert [int(each[0]) for each in wrapped] == [-(2**63), -(2**63), 0, 0]


class Alike(nn.Module):
    """Layers that are computed alike, each with an index to check."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH) for _ in range(3))
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Three sums, each behind a product."""
        for table in self.tables:
            x = self.mix(x) + table(ids)
        return x


def test_layers_alike_share_a_kernel() -> None:
    """What a check says is given at each call, so that one function serves all."""
    given = (torch.randn(7, WIDTH), torch.arange(7))
    program = torch.export.export(Alike().eval(), given, strict=False)
    code = generate_code(program, {"cpp.vec_isa_ok": True, "cpp.simdlen": 256}, BACKEND)
    assert code.generated_kernels == 1
    assert all(
        f"out of range: {node}, tables.{i} (" in code.wrapper
        for i, node in enumerate(("embedding", "embedding_1", "embedding_2"))
    )


class Gated(nn.Module):
    """Tiles of two axes, and what a dynamic length leaves of them: a speech encoder's mask."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of the rows [batch, length, 64] are padding, and their gates, transposed."""
        kept = torch.arange(x.shape[1])[None] < (x.shape[1] + 1) // 2
        padding = (~(kept[:, None] & kept[:, :, None])).all(2)
        gates = nn.functional.glu(x.transpose(1, 2), dim=1)
        return padding, gates.masked_fill(padding[:, None], 0).contiguous()


@pytest.mark.parametrize(
    ("module", "shape", "sizes"),
    [
        (nn.ReLU(), (8, 8), None),
        (Gated(), (1, 30, 64), ({1: torch.export.Dim("length", min=2, max=500)},)),
    ],
    ids=["plain", "tiles"],
)
def test_kernels_without_checks_stay_as_they_are(
    module: nn.Module, shape: tuple[int, ...], sizes: object
) -> None:
    """Nothing is put into loops that cannot fail, and torch's note of a division is left out."""
    program = torch.export.export(module, (torch.randn(shape),), dynamic_shapes=sizes, strict=False)
    options = {"aot_inductor.package": True, "cpp.vec_isa_ok": True, "cpp.simdlen": 256}
    torchs_own = Backend("cpu", CppScheduling, CheckedWrapper)
    expected = generate_code(program, options, torchs_own).kernels
    assert 'extern "C"' in expected
    lines = [line for line in expected.splitlines() if "integer_div_error" not in line]
    assert generate_code(program, options, BACKEND).kernels.splitlines() == lines
