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

_PERMUTATIONS = ("aten.permute.default", "aten.transpose.int", "aten.t.default")


@dataclass(frozen=True)
class Row:
    """One program before and after; no speed-up where nothing changed or one was not lowered."""

    passes: str
    what: str
    nodes: tuple[int, int]
    transpositions: tuple[int, int]
    before_ms: float | None = None
    after_ms: float | None = None
    speedup: float | None = None
    remark: str = ""

    def line(self) -> str:
        """For the terminal, and for a table of Markdown."""
        times = [f"{t:.3f}" if t is not None else "" for t in (self.before_ms, self.after_ms)]
        speedup = f"{self.speedup:.2f}" if self.speedup is not None else self.remark
        counts = [f"{a} to {b}" for a, b in (self.nodes, self.transpositions)]
        return f"| {' | '.join([self.passes, self.what, *counts, *times, speedup])} |"


def main() -> None:
    """Print a row a case."""
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
                print("| passes | program | nodes | transpositions | ms | ms | speed-up |")
                print("|---|---|---:|---:|---:|---:|---:|")
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
        yield _compare(case.graph_pass, case.what, program, inputs, ([], [case.choice]), options)


def _models(options: argparse.Namespace) -> Iterator[Row]:
    from transforms.prepare import prepare
    from zoo import sources
    from zoo.manifest import load_manifest

    manifest = load_manifest()
    for name in options.models:
        spec = manifest.spec(name)
        origin = manifest.origin(name).file
        loaded = sources.load(name, spec, origin=origin, random_weights=0, allow_factories=False)
        for program in spec.programs:
            prepared = prepare(loaded.module, program)
            inputs = tuple(prepared.goldens[0].inputs.values())
            lists = (options.before, options.after)
            yield _compare(name, program.name, prepared.exported.program, inputs, lists, options)


def _compare(
    passes: str,
    what: str,
    program: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    lists: tuple[Sequence[str | PassChoice], Sequence[str | PassChoice] | None],
    options: argparse.Namespace,
) -> Row:
    from transforms import run_passes
    from transforms.cpu_run import write_piece
    from zoo.errors import LoweringError

    before, _ = run_passes(program, lists[0])
    after, _ = run_passes(program, lists[1])
    row = Row(
        passes,
        what,
        (len(before.graph.nodes), len(after.graph.nodes)),
        (_transpositions(before), _transpositions(after)),
    )
    if _same(before, after):
        return replace(row, remark="unchanged")
    with tempfile.TemporaryDirectory(prefix="menagerie-") as temporary:
        folders = (Path(temporary) / "before", Path(temporary) / "after")
        for folder, version in zip(folders, (before, after), strict=True):
            try:
                write_piece(folder, version, inputs)
            except LoweringError as error:
                return replace(row, remark=f"{folder.name}: {error}")
        [timing] = alternate(*folders, threads=options.threads, rounds=options.rounds)
    return replace(
        row,
        before_ms=timing.first_ms,
        after_ms=timing.second_ms,
        speedup=timing.speedup,
    )


def _transpositions(program: ExportedProgram) -> int:
    return sum(str(node.target) in _PERMUTATIONS for node in program.graph.nodes)


def _same(before: ExportedProgram, after: ExportedProgram) -> bool:
    return before is after or str(before.graph) == str(after.graph)


if __name__ == "__main__":
    main()
