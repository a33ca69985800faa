"""The commands that look into a model's graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flows.cli import invoke

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_explain_counts_what_each_pass_changed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The digits network has three norms behind convolutions: all are folded, none refused."""
    picture = tmp_path / "graph.html"
    assert invoke(["explain", "digits_cnn", "--json", "--picture", str(picture)]) == 0
    [program] = json.loads(capfd.readouterr().out)["programs"]
    [fold] = [p["record"] for p in program["passes"] if p["record"]["name"] == "fold_batch_norm"]
    assert (len(fold["changes"]), fold["refusals"]) == (3, [])
    assert program["nodes_after"] < program["nodes_before"]
    assert "batch_norm" in picture.read_text()


def test_bisect_names_the_programs_that_exist(capfd: pytest.CaptureFixture[str]) -> None:
    """A program that the model lacks is misuse, said in one line with those it has."""
    assert invoke(["bisect", "digits_cnn", "--program", "decoder"]) == 2
    assert "no program 'decoder'. It has: main" in capfd.readouterr().err
