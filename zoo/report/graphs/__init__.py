"""The picture of a program's graph before and after the passes."""

from zoo.report.graphs.drawing import picture

__all__ = ["picture"]
