"""A search that runs out of time says what it knows, and that it is not all."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
import torch
from corrupt_target import DropsBias, Net, Runner, computing, export, gone, wrong_at

from transforms.bisect import locate
from transforms.bisect.search import _Search
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


def test_time_up_before_anything_is_known() -> None:
    """Then there is nothing to say, and the target was not asked."""
    x, runner = torch.randn(4, 8), Runner()
    with pytest.raises(MenagerieError, match="time was up before pass drops_bias was looked at"):
        locate(export(Net(), x), [DropsBias()], [x], judge=runner, seconds=0.0)
    with pytest.raises(MenagerieError, match="time was up before the lowered program ran"):
        locate(export(Net(), x), [], [x], judge=runner, seconds=0.0)
    assert runner.runs == 0
    found = locate(export(Net(), x), [DropsBias()], [x], judge=runner, seconds=math.inf)
    assert found is not None
    assert found.certain


def test_time_up_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first lowering the wrong output is known: it is named, as not certain."""
    x, runner = torch.randn(4, 8), Runner(wrong_at("gelu_1"))
    program = export(Net(), x)
    monkeypatch.setattr(_Search, "late", property(lambda _: runner.runs > 0))
    found = locate(program, [], [x], judge=runner, folder=tmp_path / "found", seconds=1.0)
    assert found is not None
    assert (found.node, found.certain) == (computing(program)[-1], False)
    assert runner.runs == 1
    monkeypatch.undo()
    assert not gone(tmp_path / "found", judge=Runner(wrong_at("gelu_1")))
    assert not json.loads((tmp_path / "found" / "divergence.json").read_text())["divergence"][
        "certain"
    ]


def test_a_found_node_is_certain_though_its_piece_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that is up while the reproducer is made smaller does not make the node doubtful."""
    x, runner = torch.randn(4, 8), Runner(wrong_at("gelu_1"))
    found = locate(export(Net(), x), [], [x], judge=runner)
    assert found is not None
    needed = runner.runs
    again = Runner(wrong_at("gelu_1"))
    monkeypatch.setattr(_Search, "late", property(lambda _: again.runs >= needed - 1))
    hasty = locate(export(Net(), x), [], [x], judge=again, seconds=1.0)
    assert hasty is not None
    assert (hasty.node, hasty.certain) == ("gelu_1", True)
