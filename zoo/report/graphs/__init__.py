"""The picture of a program's graph before and after the passes."""

from zoo.report.graphs.drawing import figure, picture, style

__all__ = ["figure", "picture", "style"]
