"""Transformations of a program's form: export, graph passes, lowering; `convert` does it all.

Names are imported on first use, since the targets alone need no torch.
"""

import sys
import warnings
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transforms.converter import ConvertedBundle, convert
    from transforms.export.prepare import Program
    from transforms.pipeline import available_passes, run_passes

__all__ = ["ConvertedBundle", "Program", "available_passes", "convert", "run_passes"]

_HOMES = {
    "ConvertedBundle": "transforms.converter",
    "Program": "transforms.export.prepare",
    "available_passes": "transforms.pipeline",
    "convert": "transforms.converter",
    "run_passes": "transforms.pipeline",
}

# torch issues this warning whenever a program is copied; no reader of ours can act on it
warnings.filterwarnings("ignore", message=r".isinstance.treespec, LeafSpec", category=FutureWarning)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _TorchvisionFinder:
    """Makes torchvision import with our operators: its own may not fit torch, or lack kernels."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec: Any = PathFinder.find_spec(name, path, target) if name == "torchvision" else None
        if spec and spec.loader:
            from zoo.models.torchvision_operators import torchvision_operators

            spec.loader.exec_module = torchvision_operators()(spec.loader.exec_module)
        return spec


sys.meta_path.insert(0, _TorchvisionFinder())
