"""Finds where a result goes wrong: which pass, or else which node of the lowered program."""

from transforms.bisect.search import diagnose, locate

__all__ = ["diagnose", "locate"]
