"""Writes a manifest's entry for a model by trying it: built, called, exported."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import torch
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from transforms.export.prepare import prepare
from zoo.calls import parameters
from zoo.errors import UsageError
from zoo.manifest import VERSION
from zoo.sources import factory, torchvision
from zoo.sources.context import Context
from zoo.spec import ProgramSpec
from zoo.spec_sources import TorchvisionSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Sizes", "entry_text", "tried_entry"]

Sizes = dict[tuple[str, int], tuple[str, int, int]]  # input and axis -> name, lowest and highest

_AN_IMAGE = (1, 3, 224, 224)
_NO_LICENCE = "LicenseRef-unknown"


def tried_entry(
    name: str, what: str, inputs: Sequence[tuple[str, torch.Tensor]], sizes: Sizes, *, folder: Path
) -> dict[str, Any]:
    """The fields of an entry that was built, called at all telling sizes, and exported.

    Args:
        name: of the model, for messages.
        what: `package.module:callable`, which returns the module with its weights, or a builder of
            torchvision.
        inputs: a name, or none for the next of forward's parameters, and an example tensor each;
            left out for a builder of torchvision: an image of 224 by 224.
        sizes: those that may change.
        folder: of the manifest; code beside it can be imported.

    Raises:
        UsageError: the module needs inputs that are not given, or has none of such a name.
        SourceError: it cannot be built.
        ExportError: it cannot be called so, or not exported.
    """
    own = ":" in what
    context = Context(name, folder, allow_factories=True)
    if own:
        # In quotes: a colon in braces is not what every reader of YAML expects.
        source = {"kind": "factory", "builder": DoubleQuotedScalarString(what)}
        module = factory.build(what, {}, context)
    else:
        source = {"kind": "torchvision", "builder": what}
        module = torchvision.untrained(TorchvisionSource(kind="torchvision", builder=what), context)
    given = inputs if inputs or own else [("", torch.zeros(_AN_IMAGE))]
    program = _program(what, module, given, sizes)
    spec = ProgramSpec.model_validate_json(json.dumps(program), strict=True)
    tried = prepare(module.eval().requires_grad_(requires_grad=False), spec)
    return {
        "summary": f"{what}, written by `zoo new`",
        "source": source,
        "programs": [program | {"outputs": list(tried.exported.output_names)}],
        "targets": ["cpu", "metal"],
        "licence": {"spdx": _NO_LICENCE},
    }


def entry_text(name: str, fields: Mapping[str, Any]) -> str:
    """A manifest's file with this entry alone, as YAML."""
    yaml = YAML()
    yaml.default_flow_style = None  # what is small stands in a line
    text = io.StringIO()
    yaml.dump({"version": VERSION, "family": name, "models": {name: dict(fields)}}, text)
    return text.getvalue()


def _program(
    what: str,
    module: torch.nn.Module,
    inputs: Sequence[tuple[str, torch.Tensor]],
    sizes: Sizes,
) -> dict[str, Any]:
    known = parameters(module.forward)
    if not inputs:
        fact = f"takes {', '.join(known) or 'nothing'}, and no input is given"
        raise UsageError(what, fact, "Give each: --input NAME=1x3x224x224")
    free = [name for name in known if name not in {given for given, _ in inputs}]
    named = {
        given or (free.pop(0) if free else f"input_{i}"): t for i, (given, t) in enumerate(inputs)
    }
    made: dict[str, Any] = {"inputs": [_input(n, t, sizes) for n, t in named.items()]}
    for place in sizes:
        if place[0] not in named or place[1] >= named[place[0]].dim():
            fact = f"there is no axis {place[1]} of an input {place[0]!r}"
            raise UsageError(what, fact, f"The inputs are {', '.join(named)}")
    ranges = {called: {"low": low, "high": high} for called, low, high in sizes.values()}
    return made | ({"dimensions": ranges} if ranges else {})


def _input(name: str, tensor: torch.Tensor, sizes: Sizes) -> dict[str, Any]:
    """An input's entry; whole numbers are drawn from the range of the example's."""
    shape = [sizes[name, i][0] if (name, i) in sizes else n for i, n in enumerate(tensor.shape)]
    made: dict[str, Any] = {"name": name, "shape": shape}
    if tensor.dtype is torch.float32:
        return made
    made["dtype"] = str(tensor.dtype).removeprefix("torch.")
    if tensor.dtype is torch.bool:
        return made | {"sample": {"kind": "prefix_mask" if tensor.dim() else "ones"}}
    if not tensor.is_floating_point():
        low, high = int(tensor.min()), int(tensor.max())
        made["sample"] = {"kind": "integers", "low": low, "high": high + 1}
    return made
