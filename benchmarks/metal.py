"""How long a Metal artifact takes to make on this host, and how slow its emulation is.

    python benchmarks/metal.py resnet18 mobilenet_v3_small

Each model is converted for both targets, with random weights and whatever caches there are. `made`
is the time from the exported program to the sealed bundle: graph passes, code generation, two
libraries, and eager's latency. `emulated` over `CPU` is what the emulated device, which checks
every access to memory, costs against the CPU artifact: it says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.figures import milliseconds, seconds, times
from tasks.job import Stage
from zoo.report import read_report
from zoo.report.summary import summarise

if TYPE_CHECKING:
    from zoo.records import ConversionReport

_MADE = (Stage.TRANSFORM, Stage.LOWER)


@dataclass(frozen=True)
class Row:
    """What one conversion for both targets told."""

    model: str
    metal: ConversionReport
    cpu: ConversionReport

    def cells(self) -> tuple[str, ...]:
        """As the table shows it."""
        shaders = sum(record.generated_kernels for record in self.metal.lowering)
        metal, cpu = summarise(self.metal).artifact_ms, summarise(self.cpu).artifact_ms
        assert metal is not None
        assert cpu is not None
        return (
            self.model,
            seconds(_made(self.metal)),
            seconds(_made(self.cpu)),
            str(shaders),
            milliseconds(metal),
            milliseconds(cpu),
            times(metal / cpu),
        )


def _made(report: ConversionReport) -> float:
    return sum(stage.seconds for stage in report.stages if stage.stage in _MADE)


def convert(model: str, target: str) -> ConversionReport:
    """Convert afresh; the report of it."""
    zoo = Path(sys.executable).with_name("zoo")
    words = ["convert", model, "--target", target, "--random-weights", "0", "--force"]
    done = subprocess.run([zoo, *words, "--json"], capture_output=True, text=True, check=False)
    [row] = json.loads(done.stdout)["results"]
    if row["outcome"] != "published":
        sys.exit(f"{model} for {target}: {row['reason']}")
    return read_report(Path(row["report"]).parent)


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    layout = "{:22} {:>10} {:>10} {:>8} {:>10} {:>10} {:>9}"
    head = ("model", "made", "for CPU", "kernels", "emulated", "CPU", "slower")
    print(layout.format(*head))
    for model in parser.parse_args().models:
        row = Row(model, convert(model, "metal"), convert(model, "cpu"))
        print(layout.format(*row.cells()), flush=True)


if __name__ == "__main__":
    main()
