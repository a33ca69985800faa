"""An artifact beside eager PyTorch on the GPU and on the CPU.

    python -m benchmarks.mac_contenders MODEL BUNDLE
    python -m benchmarks.mac_contenders MODEL BUNDLE --alone    # without PyTorch

Milliseconds of each program's largest golden case, medians. PyTorch has random weights of seed 0
and computes in float32, whatever the artifact's precision is. Where no GPU is, its row is missing,
and an artifact for Metal, which is emulated there, is not timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from menagerie.format.folder import open_bundle
from menagerie.timing import measure
from menagerie.validation.goldens import GoldenCases
from transforms.graph.callable import CallableProgram
from zoo import sources
from zoo.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SECONDS = 3.0


def eager_ms(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], device: str) -> float:
    """Return the time of one call on a device, including the wait for the device."""
    module, given = module.to(device), [value.to(device) for value in inputs]
    wait: Callable[[], object] = torch.mps.synchronize if device == "mps" else bool
    times: list[float] = []
    until = time.monotonic() + _SECONDS
    while len(times) < 2 or time.monotonic() < until:  # noqa: PLR2004 (one is warm-up)
        begun = time.perf_counter()
        module(*given)
        wait()
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times[1:])


def largest_inputs(bundle: Path, number: int) -> tuple[torch.Tensor, ...]:
    """Return the inputs of a program's largest golden case by elements, in forward's order."""
    opened = open_bundle(bundle, check_hashes=False)
    program = opened.manifest.programs[number]
    cases = GoldenCases(opened.file(program.golden.path), program)
    given = [cases.inputs(case) for case in range(program.golden_cases)]
    most = max(given, key=lambda inputs: sum(value.size for value in inputs.values()))
    return tuple(torch.from_numpy(most[each.name].copy()) for each in program.inputs)


def eager_modules(model: str, programs: Iterable[str]) -> Iterator[torch.nn.Module]:
    """Yield the module of each named program."""
    manifest = load_manifest()
    spec = manifest.spec(model)
    loaded: Any = sources.load(
        model, spec, origin=manifest.origins[model].file, random_weights=0, allow_factories=False
    )
    by_name = {program.name: program for program in spec.programs}
    for name in programs:
        yield CallableProgram(loaded.module, by_name[name])


def rows(model: str, bundle: Path, *, alone: bool) -> Iterator[tuple[str, str, float]]:
    """Yield program, contender and milliseconds."""
    names = [each.name for each in open_bundle(bundle, check_hashes=False).manifest.programs]
    if sys.platform == "darwin":
        for name in names:
            yield name, "artifact", measure(bundle, name, seconds=_SECONDS).median_ms
    if alone:
        return
    torch.set_grad_enabled(False)
    torch.set_num_threads(os.cpu_count() or 1)
    devices = ["mps", "cpu"] if torch.backends.mps.is_available() else ["cpu"]
    for number, module in enumerate(eager_modules(model, names)):
        inputs = largest_inputs(bundle, number)
        for device in devices:
            yield names[number], f"eager on {device}", eager_ms(module, inputs, device)


def main() -> None:
    """Print a Markdown table, with each row as soon as it is known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--alone", action="store_true", help="the artifact without PyTorch")
    options = parser.parse_args()
    print("| program | contender | ms |\n|---|---|---:|")
    for program, contender, took in rows(options.model, options.bundle, alone=options.alone):
        print(f"| {options.model}/{program} | {contender} | {took:.3f} |", flush=True)


if __name__ == "__main__":
    main()
