"""Branches and loops that values decide, in the form that torch.export records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from menagerie.session import Session
from transforms import convert

if TYPE_CHECKING:
    from pathlib import Path


class Either(nn.Module):
    """A branch that a value decides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Larger or smaller by one."""
        chosen: torch.Tensor = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        return chosen


def test_branches_of_torch_cond_run_by_value(tmp_path: Path) -> None:
    """Each where eager takes it, which goes on to answer in this process."""
    bundle = convert(Either(), (torch.ones(3),), out=tmp_path / "made", measure_seconds=0)
    with Session(bundle.folder) as session:
        for x, wanted in ((2, 3), (-2, -3)):
            assert session.run({"x": np.full(3, x, np.float32)})["output"].tolist() == [wanted] * 3
            assert Either()(torch.full((3,), float(x))).tolist() == [wanted] * 3
