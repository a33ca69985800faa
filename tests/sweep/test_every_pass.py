"""Every graph pass on every model of the manifest: the numbers stay eager's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch

from menagerie.numerics import DEFAULT_TOLERANCES
from transforms import available_passes, run_passes
from transforms.bisect.pieces import differences
from transforms.export.prepare import Prepared, prepare
from transforms.pipeline import passes_in
from transforms.targets import PassItem, all_targets
from zoo import sources
from zoo.manifest import load_manifest
from zoo.precision import Precision, WeightPrecision
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from zoo.spec import ModelSpec

pytestmark = pytest.mark.sweep

_MANIFEST = load_manifest()
_LISTS: dict[str, tuple[PassItem, ...]] = {
    **{name: (name,) for name in available_passes()},
    "fuse_cat_linear, no gate": (PassChoice(name="fuse_cat_linear", options={"gate": "open"}),),
    "everything": tuple(available_passes()),
    **{f"default, {name}": passes_in(WeightPrecision(), None, name) for name in all_targets()},
}


class _Row(NamedTuple):
    """One list of passes on one program; errors in the outputs' own units and in decibels."""

    passes: str
    nodes_before: int
    nodes_after: int
    changes: int
    refusals: int
    max_abs: float
    snr_db: float
    wrong: tuple[str, ...]


_MODELS = sorted(n for n, s in _MANIFEST.models.items() if s.precision is Precision.FLOAT32)


@pytest.mark.parametrize("model", _MODELS)
def test_every_pass_keeps_the_numbers(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each pass alone, and each target's list, agree with eager on all golden cases.

    Prints a line a pass: nodes before and after, changes, refusals, the largest error.
    """
    spec = _MANIFEST.spec(model)
    origin = _MANIFEST.origins[model].file
    loaded = sources.load(model, spec, origin=origin, random_weights=0, allow_factories=False)
    rows = []
    for program in spec.programs:
        prepared = prepare(loaded.module, program)
        before = _wrong(prepared, prepared.program, spec)
        assert before[2] == (), "the export is wrong before any pass"
        rows += [_row(name, passes, prepared, spec) for name, passes in _LISTS.items()]
    with capsys.disabled():
        for row in rows:
            print("\t".join(map(str, (model, *row))), flush=True)  # noqa: T201
    assert {row.passes: row.wrong for row in rows if row.wrong} == {}


def _row(
    name: str, passes: tuple[str | PassChoice, ...], prepared: Prepared, spec: ModelSpec
) -> _Row:
    program = prepared.program
    rewritten, log = run_passes(program, passes)
    return _Row(
        name,
        len(program.graph.nodes),
        len(rewritten.graph.nodes),
        sum(len(r.changes) for r in log.records),
        sum(len(r.refusals) for r in log.records),
        *((0.0, float("inf"), ()) if rewritten is program else _wrong(prepared, rewritten, spec)),
    )


def _wrong(
    prepared: Prepared, program: ExportedProgram, spec: ModelSpec
) -> tuple[float, float, tuple[str, ...]]:
    """The largest error and lowest SNR over all golden cases, and the outputs out of tolerance."""
    module: Any = program.module(check_guards=False)
    errors, ratios, wrong = [0.0], [float("inf")], []
    for number, case in enumerate(prepared.goldens):
        with torch.no_grad():
            outputs = module(*(t.clone() for t in case.inputs.values()))
        assert list(outputs) == list(case.outputs)
        for name, expected in case.outputs.items():
            tolerances = {**DEFAULT_TOLERANCES, **spec.own_tolerances}
            found = differences({name: expected}, outputs, tolerances)[name]
            errors.append(found.max_abs)
            ratios.append(found.snr_db)
            if not found.passed:
                wrong.append(f"case {number}, {name}: {found.max_abs:.2g}")
    return max(errors), min(ratios), tuple(wrong)
