"""Finds where a result goes wrong: which pass, or else which node of the lowered program."""

from transforms.bisect.pieces import Runner
from transforms.bisect.search import diagnose, locate

__all__ = ["Runner", "diagnose", "locate"]
