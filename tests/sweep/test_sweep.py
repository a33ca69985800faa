"""The table of the sweep: what the README says of it, and that a run resumes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.sweep import attempt
from tests.sweep.apart import Bounds
from tests.sweep.attempt import run, without_folders
from tests.sweep.case import Case, Sample
from tests.sweep.record import Record, Results
from tests.sweep.table import README, TABLE, sentence, table, with_sentence


def test_the_readme_says_what_the_results_say() -> None:
    """The sentence is generated: after an edit of it, or of the results, run `make sweep` again."""
    said = sentence(Results())
    assert with_sentence(README.read_text(), said) == README.read_text()
    assert said.partition("; its [table]")[0] in TABLE.read_text()


def test_the_share_counts_what_exports_or_may(tmp_path: Path) -> None:
    """Proven of those that torch.export exports; a case that ran out of time counts as able."""
    results = Results(tmp_path / "results.json")
    rows = {
        "a": Record("proven", exported=True, snr_db=120.0),
        "b": Record("refused", exported=False, text="torch.export failed"),
        "c": Record("out of time"),
        "d": Record("does not run", exported=False),
        "e": Record("proven", exported=True),
        "f": Record("refused", exported=True, missing=("aoti_torch_cpu_x",)),
    }
    for name, record in rows.items():
        results.add("cpu", name, record)
    assert "Of the 6 architectures that the sweep has tried so far, 2 of 4 (50 %)" in sentence(
        results
    )
    assert Results(tmp_path / "results.json").records == {"cpu": rows}
    cases = {
        name: Case(name, "lib", "family", lambda: Sample(torch.nn.ReLU(), {})) for name in "afz"
    }
    text = table(cases, results)
    assert "| a | cpu | yes | proven, 120 dB | none |  |" in text
    assert "| f | cpu | yes | refused | none | no kernel: aoti_torch_cpu_x |" in text
    assert "1 not tried yet." in text


class _Fixed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 3) + 1


def _case(module: torch.nn.Module, *, ranges: dict[str, tuple[int, int]]) -> Case:
    axes = {"x": tuple(ranges)}
    return Case("one", "lib", "f", lambda: Sample(module, {"x": torch.ones(2, 3)}, axes, ranges))


def test_sizes_that_do_not_vary_are_left_fixed_and_reported(tmp_path: Path) -> None:
    """The artifact is proven at fixed sizes, and the row says why no size varies."""
    case = _case(_Fixed(), ranges={"batch": (1, 4)})
    record = attempt.attempt(case, "cpu", tmp_path / "out")
    assert (record.state, record.exported, record.dynamic) == ("proven", True, ())
    assert record.narrowed.startswith("batch 1..4: ")
    assert "torch.export failed" in record.narrowed


class _Drawn(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


def test_what_export_takes_and_we_refuse_is_our_row(tmp_path: Path) -> None:
    """Refused by us, exported by torch: it counts against the goal, with our words."""
    record = attempt.attempt(_case(_Drawn(), ranges={}), "cpu", tmp_path / "out")
    assert (record.state, record.exported, record.error) == ("refused", True, "ExportError")
    assert "random numbers are drawn" in record.text


@pytest.mark.parametrize("seconds", [0.01])
def test_a_case_that_takes_too_long_is_ended(seconds: float) -> None:
    """Its process goes, and the row says so."""
    record = run("resnet18", "cpu", Bounds(seconds, 8.0))
    assert record.state == "out of time"


def test_a_kept_message_names_no_folder_of_the_machine() -> None:
    """Neither where the checkout and packages are nor where a case had its bundle."""
    checkout = Path(__file__).parents[2]
    said = f"failed at {checkout}/tests/suites/cases.py:1, by {checkout}/.venv/site-packages/y.py:2"
    assert without_folders(said) == "failed at tests/suites/cases.py:1, by y.py:2"
    said = (
        "a branch at /srv/ab/.venv/lib/python3.11/site-packages/transformers/x.py:3, and "
        "/tmp/menagerie-sweep-a1_/.bundle.x9/bundle/programs/main/model.so: failed"
    )
    kept = without_folders(said)
    assert kept == "a branch at transformers/x.py:3, and bundle/programs/main/model.so: failed"
