"""What changes a program's form: export, graph passes, lowering."""

import warnings

from transforms.pipeline import available_passes, run_passes

__all__ = ["available_passes", "run_passes"]

# torch says this of itself whenever a program is copied; no reader of ours can act on it
warnings.filterwarnings("ignore", message=r".isinstance.treespec, LeafSpec", category=FutureWarning)
