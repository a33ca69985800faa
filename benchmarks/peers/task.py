"""The task of all contenders of a comparison: inputs, and eager PyTorch's results."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Task:
    """A model, a number of threads, and the folder that `write` filled.

    Attributes:
        model: the model's name in the manifest.
        threads: number of threads of a contender.
        folder: folder of `bundle`, `inputs.npz`, and the contenders' files.
    """

    model: str
    threads: int
    folder: Path

    @property
    def bundle(self) -> Path:
        """The release's folder."""
        return self.folder / "bundle"

    def program(self) -> str:
        """Return the name of the release's first program, the only one that is compared."""
        name: str = json.loads((self.bundle / "manifest.json").read_text())["programs"][0]["name"]
        return name

    def seed(self) -> int | None:
        """Return the seed of the release's weights, which all contenders share; None if trained."""
        source: str = json.loads((self.bundle / "manifest.json").read_text())["source"]
        found = re.search(r"seed (\d+)", source)
        return int(found[1]) if found else None

    def write(self, given: Mapping[str, np.ndarray] | None = None) -> None:
        """Write inputs in forward's order, or those of the release's first golden case."""
        from torch.utils._pytree import tree_leaves

        from menagerie.format.folder import open_bundle
        from menagerie.validation.goldens import GoldenCases

        bundle = open_bundle(self.bundle, check_hashes=False)
        entry = bundle.manifest.programs[0]
        cases = GoldenCases(bundle.file(entry.golden.path), entry)
        given = given or cases.inputs(0)
        np.savez(self.folder / "inputs.npz", **{i.name: given[i.name] for i in entry.inputs})
        module, tensors = self.module()
        results = tree_leaves(module(*tensors))
        np.savez(self.folder / "expected.npz", *(r.float().numpy() for r in results))

    def inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs by name, in forward's order."""
        with np.load(self.folder / "inputs.npz") as kept:
            return {name: kept[name] for name in kept.files}

    def module(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the module of the first program, with the inputs as tensors."""
        import torch

        from transforms.graph.callable import CallableProgram
        from zoo import sources
        from zoo.manifest import load_manifest

        torch.set_grad_enabled(False)
        manifest = load_manifest()
        spec = manifest.spec(self.model)
        origin = manifest.origins[self.model].file
        loaded = sources.load(
            self.model, spec, origin=origin, random_weights=self.seed(), allow_factories=False
        )
        given = tuple(map(torch.from_numpy, self.inputs().values()))
        return CallableProgram(loaded.module, spec.programs[0]), given
