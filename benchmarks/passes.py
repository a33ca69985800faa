"""What each graph pass gains on the CPU target, as ratios of alternating runs.

    python benchmarks/passes.py                              # the cases of pass_cases.py
    python benchmarks/passes.py --only fuse_cat_linear
    python benchmarks/passes.py --models resnet18 swin_t     # models: no passes, default list
    python benchmarks/passes.py --models swin_t --before fold_batch_norm --after fold_batch_norm
        pointwise_affine_to_conv                             # or any two lists

Every program is lowered twice, without and with the pass. The two artifacts run in turns in one
process without torch (`alternating.py`), on one thread, where processor time is counted; the table
shows the median of the ratios turn by turn. A pass that changes nothing is not run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from alternating import alternate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from torch.export import ExportedProgram

    from zoo.spec import PassChoice

    _Passes = Sequence[str | PassChoice]

_HEADING = """\
| pass or model | program | nodes | transpositions | ms before | ms after | speed-up |
|---|---|---:|---:|---:|---:|---:|"""
_PERMUTATIONS = ("aten.permute.default", "aten.transpose.int", "aten.t.default")


@dataclass(frozen=True)
class Row:
    """One program before and after; no speed-up if nothing changed or lowering failed."""

    passes: str
    what: str
    nodes: tuple[int, int]
    transpositions: tuple[int, int]
    before_ms: float | None = None
    after_ms: float | None = None
    speedup: float | None = None
    remark: str = ""

    def line(self) -> str:
        """Return a row for the terminal and for a Markdown table."""
        times = [f"{t:.3f}" if t is not None else "" for t in (self.before_ms, self.after_ms)]
        speedup = f"{self.speedup:.2f}" if self.speedup is not None else self.remark
        counts = [f"{a} to {b}" for a, b in (self.nodes, self.transpositions)]
        return f"| {' | '.join([self.passes, self.what, *counts, *times, speedup])} |"


def main() -> None:
    """Print a row per case."""
    from transforms.pipeline import available_passes

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=sorted(available_passes()), metavar="PASS")
    parser.add_argument("--models", nargs="+", default=[], help="of the manifest, random weights")
    parser.add_argument("--before", nargs="*", default=[], metavar="PASS", help="for models")
    parser.add_argument("--after", nargs="*", metavar="PASS", help="for models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for row in _models(options) if options.models else _cases(options):
        rows.append(row)
        if not options.json:
            if len(rows) == 1:
                print(_HEADING)
            print(row.line(), flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))


def _cases(options: argparse.Namespace) -> Iterator[Row]:
    import torch
    from pass_cases import CASES

    for case in CASES:
        if options.only and case.graph_pass not in options.only:
            continue
        torch.manual_seed(0)
        inputs = case.inputs()
        exported = torch.export.export(case.module().eval(), inputs, strict=False)
        program = exported.run_decompositions({})
        named = (case.graph_pass, case.what)
        yield _compare(named, program, inputs, ([], [case.choice]), options)


def _models(options: argparse.Namespace) -> Iterator[Row]:
    from transforms.export.prepare import prepare
    from zoo import sources
    from zoo.manifest import load_manifest

    manifest = load_manifest()
    for name in options.models:
        spec = manifest.spec(name)
        origin = manifest.origins[name].file
        loaded = sources.load(name, spec, origin=origin, random_weights=0, allow_factories=False)
        for program in spec.programs:
            prepared = prepare(loaded.module, program)
            inputs = tuple(prepared.goldens[0].inputs.values())
            lists = (options.before, options.after)
            named = (name, program.name)
            yield _compare(named, prepared.program, inputs, lists, options)


def _compare(
    row: tuple[str, str],
    program: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    lists: tuple[_Passes, _Passes | None],
    options: argparse.Namespace,
) -> Row:
    from transforms import run_passes
    from transforms.bisect.pieces import lower_piece
    from zoo.errors import UnsupportedKernels

    before, after = (run_passes(program, passes)[0] for passes in lists)
    counts = [(len(p.graph.nodes), _transpositions(p)) for p in (before, after)]
    (nodes, moved), (nodes_after, moved_after) = counts
    unchanged = Row(*row, (nodes, nodes_after), (moved, moved_after), remark="unchanged")
    if before is after or str(before.graph) == str(after.graph):
        return unchanged
    with tempfile.TemporaryDirectory(prefix="menagerie-") as temporary:
        first, second = Path(temporary) / "before", Path(temporary) / "after"
        lower_piece(second, after, inputs)
        try:
            lower_piece(first, before, inputs)
        except UnsupportedKernels as error:
            [timing] = alternate(second, second, threads=options.threads, rounds=options.rounds)
            return replace(
                unchanged,
                before_ms=_eager_ms(before, inputs, options.threads),
                after_ms=timing.after_ms,
                remark=f"lowers only with the pass (lacks {', '.join(error.uses)}); before: eager",
            )
        [timing] = alternate(first, second, threads=options.threads, rounds=options.rounds)
    return replace(unchanged, remark="", **timing._asdict())


def _eager_ms(program: ExportedProgram, inputs: Sequence[torch.Tensor], threads: int) -> float:
    """Return the processor time of a run in eager PyTorch."""
    import torch

    from menagerie.profile import latency

    torch.set_num_threads(threads)
    module = program.module(check_guards=False)
    with torch.no_grad():
        measured = latency(lambda: module(*inputs), seconds=2.0, threads=threads)
    return measured.processor_ms if threads == 1 and measured.processor_ms else measured.median_ms


def _transpositions(program: ExportedProgram) -> int:
    return sum(str(node.target) in _PERMUTATIONS for node in program.graph.nodes)


if __name__ == "__main__":
    main()
