"""A part of PyTorch's own tables through `convert()`, and the table of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.suites.__main__ import part_of
from tests.suites.attempt import Outcome, State, convert_calls
from tests.suites.cases import SAMPLES, Call, Case, Together, cases, ranked
from tests.suites.choice import Left, choice, dynamic_shapes
from tests.suites.table import README, TABLE, Results, sentence, share, table, with_sentence
from tests.suites.values import KINDS, compare, difference, others

if TYPE_CHECKING:
    from pathlib import Path

# One program for each line: layouts, edges and dtypes of what people write most.
_TOGETHER = (
    ("op_db/add/float32", "op_db/sum/float32", "op_db/where/float32"),
    ("op_db/topk/bfloat16", "op_db/add/int64", "op_db/logical_and/bool", "op_db/add/uint8"),
    ("module_db/nn.Conv2d/float32", "module_db/nn.GRU/float32", "module_db/nn.LayerNorm/float32"),
)


@pytest.mark.parametrize("names", _TOGETHER, ids=lambda names: names[0])
def test_some_of_torchs_own_cases_are_proven_and_right_on_other_values(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    """All of their samples, which are then run on zeros, negative and extreme numbers."""
    calls = [call for name in names for call in choice(name).calls]
    assert convert_calls(calls, "cpu", tmp_path / "bundle") == {"state": State.PROVEN}
    found = compare(calls, str(tmp_path / "bundle"), str(tmp_path / "log"), {}, tmp_path)
    assert {text for _, _, text in found.values()} == {""}
    assert all(same == sets > 0 for same, sets, _ in found.values())


def test_a_dynamic_size_of_a_case_is_proven(tmp_path: Path) -> None:
    """The first axis of one sample, in all inputs of its size where they must agree."""
    chosen = choice("op_db/mul/float32")
    assert chosen.dynamic is not None
    shapes = dynamic_shapes(chosen.dynamic, chosen.axes, chosen.low, "n")
    outcome = convert_calls([chosen.dynamic], "cpu", tmp_path / "bundle", shapes)
    assert outcome == {"state": State.PROVEN}


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("op_db/bernoulli/float32", Left.RANDOM),
        ("op_db/nonzero/float32", Left.SHAPED_BY_DATA),
        ("op_db/fft.fft/float32", Left.COMPLEX),
        ("op_db/arange/float32", Left.NO_TENSOR),
        ("op_db/new_empty/float32", Left.UNINITIALISED),
    ],
)
def test_what_no_fixed_program_can_do_is_not_counted(name: str, left: Left) -> None:
    """By the operator itself, not by what the converter says of it."""
    chosen = choice(name)
    assert chosen.left == left
    assert not chosen.calls


@pytest.mark.parametrize(
    ("name", "fewest"),
    [
        ("op_db/nn.functional.one_hot/int64", 2),  # others ask for the number of classes
        ("op_db/tensor_split/float32", 6),  # others have indices that are a tensor
        ("op_db/nn.functional.grid_sample/float32", 6),  # the large ones are left out
        ("op_db/nn.functional.dropout/float32", 6),  # others are in training
        ("module_db/nn.LazyConv1d/float32", 2),
        ("module_db/nn.TransformerEncoderLayer/float32", 6),
    ],
)
def test_a_sample_that_cannot_be_converted_leaves_the_others(name: str, fewest: int) -> None:
    """A case is counted by its other samples."""
    assert len(choice(name).calls) >= fewest


def test_samples_differ_in_arguments_first_and_then_in_shapes() -> None:
    """The other argument comes with the other shape, then more axes, then the other layout."""
    x, y = torch.zeros(2, 3), torch.zeros(4)
    given = [(x, 0), (x, 0), (y, 0), (x, 1), (x.t(), 0), (torch.zeros(3, 2), 1)]
    made = [Call.of(torch.sum, arguments, {}) for arguments in given]
    places = {id(call): place for place, call in enumerate(made)}
    assert [places[id(call)] for call in ranked(made)] == [0, 5, 2, 4, 1, 3]


@pytest.mark.parametrize("name", ["op_db/nonzero_static/float32", "op_db/sum/float32"])
def test_samples_are_never_empty_results_alone(name: str) -> None:
    """At most one of them has no element."""
    calls = choice(name).calls
    empty = [call for call in calls if not any(r.numel() for r in call.run(call.tensors))]
    assert len(empty) <= 1 < len(calls)


def test_samples_of_a_case_are_the_same_in_every_process() -> None:
    """So that results of runs can be added."""
    once, again = (choice("op_db/add/float32").calls for _ in range(2))
    inputs = zip(Together(once).inputs, Together(again).inputs, strict=True)
    for first, second in inputs:
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


def test_other_values_are_of_the_kind() -> None:
    """Shapes and dtypes stay."""
    given = [torch.randn(3, 4, dtype=d) for d in (torch.float32, torch.bfloat16)]
    given += [torch.randint(0, 9, (3, 4), dtype=d) for d in (torch.int64, torch.int8)]
    zeros, negative, extreme = (others(given, kind) for kind in KINDS)
    for made in (zeros, negative, extreme):
        assert [(t.shape, t.dtype) for t in made] == [(t.shape, t.dtype) for t in given]
    assert not any(t.any() for t in zeros)
    assert all((t < 0).all() for t in negative)
    assert [int(t.isnan().sum()) for t in extreme[:2]] == [1, 1]
    assert extreme[3].unique().tolist() == [-128, 127]


def test_a_difference_is_a_finite_error_or_another_kind_of_number() -> None:
    """NaN for a number, infinity of the other sign, and a number out of tolerance."""
    eager = torch.tensor([1.0, float("nan"), float("inf")])
    assert not difference(eager + 1e-6, eager, 1e-3)
    for place, wrong in ((0, 1.1), (0, float("nan")), (1, 0.0), (2, float("-inf")), (2, 3.0)):
        found = eager.clone()
        found[place] = wrong
        assert difference(found, eager, 1e-3).startswith(f"at [{place}]: eager ")
    assert difference(torch.tensor([3]), torch.tensor([2]), 1e-3) == (
        "at [0]: eager 2, artifact 3, 1 of 1"
    )


def test_a_fraction_is_a_part_of_every_larger_one() -> None:
    """So a run of a larger fraction goes on where a smaller one ended."""
    names = [f"op_db/{number}/float32" for number in range(1000)]
    few, many = part_of(names, 0.1, 7), part_of(names, 0.3, 7)
    assert 60 < len(few) < 140
    assert set(few) < set(many)
    assert set(part_of(names, 0.1, 8)) != set(few)
    assert part_of(names, 1.0, 7) == names


def test_a_run_resumes_and_the_shares_are_those_of_its_rows(tmp_path: Path) -> None:
    """Outcomes come back from a file of a line for each case; shares leave out the uncounted."""
    results = Results(tmp_path / "results.json")
    results.cases = 8
    rows = {
        "module_db/d/float32": Outcome(State.PROVEN, 2, 2, "", 5, 6, values_text="zeros: 1 for 2"),
        "op_db/a/float32": Outcome(State.PROVEN, 6, 6, State.PROVEN, 18, 18),
        "op_db/b/float32": Outcome(State.REFUSED, 4, 6, State.WRONG, 12, 12, "no kernel | of this"),
        "op_db/c/float32": Outcome(State.NOT_COUNTED, text="random"),
    }
    results.add([("cpu", name, outcome) for name, outcome in rows.items()])
    assert len((tmp_path / "results.json").read_text().splitlines()) == len(rows) + 2
    held = Results(tmp_path / "results.json")
    assert (held.cases, held.records) == (8, {"cpu": rows})
    counts = share([rows[name] for name in rows if name.startswith("op_db/")])
    assert (counts.whole, counts.samples) == ((1, 2), (10, 12))
    assert (counts.dynamic, counts.values) == ((1, 2), (30, 30))
    text = table(held)
    assert "Of all cases 4 of 8 (50.0 %) were run." in text
    assert "of 4 cases drawn from 8, 1 of 2" in sentence(held)
    assert "| float32 | 1 of 2 (50.0 %) | 10 of 12 (83.3 %) | 1 of 2 (50.0 %) |" in text
    assert "| op_db/b | float32 | 4 of 6 proven | refused: no kernel \\| of this |" in text
    assert "| module_db/d | float32 | 5 of 6 the same | zeros: 1 for 2 |" in text
    assert (
        "1 of 2 (50.0 %) operators by dtype and 1 of 1 modules are proven on the CPU"
        in sentence(held)
    )


def test_the_table_and_the_readme_say_what_the_results_say() -> None:
    """After an edit of one, run `make suites` again."""
    results = Results()
    assert TABLE.read_text() == table(results)
    text = README.read_text()
    assert with_sentence(text, sentence(results)) == text


def test_every_row_is_of_a_case_and_within_its_budget() -> None:
    """No row is left of a case that PyTorch's tables no longer have."""
    known: dict[str, Case] = cases()
    for rows in Results().records.values():
        for name, outcome in rows.items():
            assert outcome.proven <= outcome.of <= SAMPLES[known[name].dtype]
            assert outcome.same <= outcome.sets
