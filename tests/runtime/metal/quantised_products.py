"""Products with weights that a bundle keeps as integers and scales, of every shape that is awkward."""

from __future__ import annotations

import torch
from torch import nn


class Quantised(nn.Module):
    """A module whose weights are integers times scales.

    `kept` has them as a bundle does (FORMAT.md, rule 8), by the names of its state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, torch.Tensor] = {}

    def add(self, name: str, bits: int, group: int, *sizes: int) -> None:
        """A weight of so many bits, with a scale for each `group` of a row's numbers."""
        rows, columns = sizes[0], torch.Size(sizes[1:]).numel()
        most = 2 ** (bits - 1) - 1
        integers = torch.randint(-most, most + 1, (rows, columns))
        scales = (torch.rand(rows, columns // group) / most / 4 + 1e-3).bfloat16()
        wide = integers.float() * scales.float().repeat_interleave(group, 1)
        self.register_parameter(name, nn.Parameter(wide.reshape(sizes), requires_grad=False))
        self.kept[f"{name}.scales"] = scales
        if bits == 8:
            self.kept[name] = integers.to(torch.int8).reshape(sizes)
            return
        above = nn.functional.pad(integers + 8, (0, columns % 2)).to(torch.uint8)
        self.kept[name] = above[:, 0::2] | above[:, 1::2] << 4
        self.kept[f"{name}.shape"] = torch.tensor(sizes)


class PackedProducts(Quantised):
    """Products alone: nothing reads a float of any weight, but for the one that is named so."""

    def __init__(self) -> None:
        super().__init__()
        self.add("eight", 8, 32, 7, 96)
        self.add("four", 4, 32, 70, 96)
        self.add("odd", 4, 33, 5, 33)  # a row ends in half a byte
        self.add("crooked", 8, 50, 34, 50)  # rows that are no whole words
        self.add("stretched", 8, 256, 6, 512)
        self.add("one", 8, 64, 1, 64)
        self.add("down", 4, 32, 40, 64)  # its rows are added up
        self.bias = nn.Parameter(torch.randn(70), requires_grad=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """All results of rows [40, 96], one after another."""
        first = rows[:1]
        added = torch.cat((first, first)).reshape(-1)[:70]
        long = torch.cat((rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]))[:512]
        results = (
            nn.functional.linear(rows, self.eight),
            nn.functional.linear(first, self.eight),
            nn.functional.linear(rows, self.four, self.bias),
            nn.functional.linear(first, self.four, self.bias),
            torch.addmm(added, rows[:33], self.four.t(), beta=0.5, alpha=2.0),
            nn.functional.linear(rows[:, :33], self.odd),
            nn.functional.linear(first[:, 60:93], self.odd),
            nn.functional.linear(rows[:, :50], self.crooked),
            nn.functional.linear(first[:, :50], self.crooked),
            nn.functional.linear(long[None], self.stretched),
            nn.functional.linear(rows[:, :64], self.one),
            nn.functional.linear(first[:, 7:71], self.one),
            rows.t() @ self.down,
            rows[:, :1].t() @ self.down,
            self.eight @ rows.t(),
            self.four @ rows[3],
            nn.functional.linear(rows, self.four[3:20]),
            nn.functional.linear(rows.reshape(2, 20, 96), self.eight),
            torch.bmm(rows.reshape(2, 20, 96), self.eight.t().expand(2, 96, 7)),
        )
        return torch.cat([result.reshape(-1) for result in results])


class PackedRest(Quantised):
    """Weights that are read as floats: by another operator too, or since their groups are odd."""

    def __init__(self) -> None:
        super().__init__()
        self.add("table", 4, 32, 9, 96)
        self.add("thirds", 8, 24, 7, 96)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Results of rows [4, 96], one after another."""
        found = self.table[rows[:, 0].mul(2).abs().long().clamp(max=8)]
        results = (rows @ self.table.t(), found, rows @ self.thirds.t())
        return torch.cat([result.reshape(-1) for result in results])
