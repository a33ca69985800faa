"""What changes a program's form: export, graph passes, lowering."""

from transforms.pipeline import available_passes, run_passes

__all__ = ["available_passes", "run_passes"]
