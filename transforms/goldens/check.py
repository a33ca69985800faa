"""Golden cases of a candidate against what eager PyTorch computes here; a process of its own.

Started by `tasks.publish` as ``python -m transforms.goldens.check``, with the order as JSON on
standard input and without keys: it runs the model's own Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from menagerie.format.folder import open_bundle
from menagerie.validation.compare import compare
from menagerie.validation.goldens import GoldenCases
from zoo import sources
from zoo.errors import MenagerieError, ValidationError
from zoo.manifest import load_manifest
from zoo.sources.context import Context

if TYPE_CHECKING:
    import numpy as np
    import torch

    from zoo.spec import ModelSpec


def main() -> int:
    """Checks what the order names; says on standard error what is wrong."""
    order = json.load(sys.stdin)
    try:
        folder = Path(order["manifest"]) if order["manifest"] else None
        manifest = load_manifest(folder)
        check_goldens(
            order["model"],
            manifest.spec(order["model"]),
            manifest.origin(order["model"]).file,
            Path(order["bundle"]),
            allow_factories=order["allow_factories"],
        )
    except MenagerieError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def check_goldens(
    name: str, spec: ModelSpec, origin: Path, folder: Path, *, allow_factories: bool
) -> None:
    """Returns if a bundle's golden cases are those of its model.

    Args:
        name: of the model.
        spec: its entry.
        origin: the manifest file that the entry stands in.
        folder: the bundle's.
        allow_factories: whether builders from outside Menagerie may run.

    Raises:
        ValidationError: inputs are others than the entry's seeds give, or an output is farther from
            eager's than the entry's tolerance.
        SourceError: the model cannot be had here.
    """
    from transforms.goldens.cases import make_goldens, model_dtype
    from transforms.goldens.real_samples import real_sample

    bundle = open_bundle(folder)
    seed = bundle.manifest.random_weights
    loaded = sources.load(
        name, spec, origin=origin, random_weights=seed, allow_factories=allow_factories
    )
    listed = {program.name: program for program in bundle.manifest.programs}
    for program in spec.programs:
        entry = listed[program.name]
        calls = program.calls if entry.state else 1
        cases = make_goldens(
            loaded.module,
            program,
            dtype=model_dtype(loaded.module),
            calls=calls,
            real=real_sample(spec, program, Context(name, origin.parent)),
        )
        found = GoldenCases(bundle.file(entry.golden.path), entry)
        if len(found) != len(cases):
            raise _differs(name, f"{program.name} has {len(found)} cases, not {len(cases)}")
        for number, case in enumerate(cases):
            place = f"{program.name}, case {number}"
            theirs = found.inputs(number)
            for each, tensor in case.inputs.items():
                ours = _array(tensor)
                if each not in theirs or theirs[each].tobytes() != ours.tobytes():
                    raise _differs(name, f"{place}: input {each} is not the one of its seed")
            outputs = found.outputs(number)
            for output in entry.outputs:
                expected = _array(case.outputs[output.name])
                result = compare(
                    expected,
                    outputs[output.name],
                    output.dtype,
                    spec.tolerance(output.dtype),
                    case=number,
                    name=output.name,
                )
                if not result.passed:
                    raise _differs(name, f"{place}: golden output {output.name}: {result.fact}")


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """As a golden file has it: bfloat16 as its bits."""
    import torch

    plain = tensor.detach().contiguous()
    return (plain.view(torch.uint16) if plain.dtype is torch.bfloat16 else plain).numpy()


def _differs(name: str, fact: str) -> ValidationError:
    return ValidationError(
        name, f"its golden cases are not those of the model: {fact}", "Do not promote it"
    )


if __name__ == "__main__":
    sys.exit(main())
