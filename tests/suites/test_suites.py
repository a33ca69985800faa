"""A part of PyTorch's own tables through `convert()`, and the table of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.suites.attempt import Outcome, State, convert_cases, not_counted
from tests.suites.cases import Together, cases
from tests.suites.table import TABLE, Results, share, table

if TYPE_CHECKING:
    from pathlib import Path

# One program for each line: layouts, edges and dtypes of what people write most.
_TOGETHER = (
    ("op_db/add/float32", "op_db/add/int64", "op_db/sum/float32", "op_db/where/float32"),
    ("op_db/topk/float32", "op_db/index_select/int64", "op_db/logical_and/bool"),
    ("module_db/nn.Conv2d/float32", "module_db/nn.GRU/float32", "module_db/nn.LayerNorm/float32"),
)


@pytest.mark.parametrize("names", _TOGETHER, ids=lambda names: names[0])
def test_some_of_torchs_own_cases_are_proven(names: tuple[str, ...], tmp_path: Path) -> None:
    """Each with up to six of the inputs that PyTorch tests it with."""
    outcome = convert_cases([cases()[name] for name in names], "cpu", tmp_path)
    assert outcome == Outcome(State.PROVEN)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("op_db/bernoulli/float32", State.RANDOM),
        ("op_db/nonzero/float32", State.SHAPED_BY_DATA),
        ("op_db/fft.fft/float32", State.COMPLEX),
        ("op_db/arange/float32", State.NO_TENSOR),
        ("op_db/new_empty/float32", State.UNINITIALISED),
    ],
)
def test_what_no_fixed_program_can_do_is_not_counted(name: str, state: State) -> None:
    """By the operator itself, not by what the converter says of it."""
    outcome = not_counted(cases()[name])
    assert outcome is not None
    assert outcome.state is state


def test_calls_of_a_case_are_the_same_in_every_process() -> None:
    """So that a case that was converted with others is the one that is tried alone."""
    once, again = (cases()["op_db/add/float32"].calls() for _ in range(2))
    inputs = zip(Together(once).inputs, Together(again).inputs, strict=True)
    for first, second in inputs:
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


def test_a_run_resumes_and_the_share_leaves_out_what_cannot_be(tmp_path: Path) -> None:
    """Outcomes come back from the file; random ones are not counted."""
    results = Results(tmp_path / "results.json")
    rows = {
        "op_db/a/float32": Outcome(State.PROVEN),
        "op_db/b/float32": Outcome(State.REFUSED, "UnsupportedKernels", "no kernel | of this"),
        "op_db/c/float32": Outcome(State.RANDOM),
        "module_db/d/float32": Outcome(State.PROVEN),
    }
    for name, outcome in rows.items():
        results.add("cpu", name, outcome)
    held = Results(tmp_path / "results.json")
    assert held.records == {"cpu": rows}
    assert share(held, "cpu", "op_db") == (1, 2)
    text = table(held)
    assert "| cpu | op_db | 1 | 2 | 50.0 % | 97 % |" in text
    assert "| op_db/b/float32 | refused | UnsupportedKernels: no kernel \\| of this |" in text


def test_the_table_says_what_the_results_say() -> None:
    """After an edit of one, run `make suites` again."""
    assert TABLE.read_text() == table(Results())
