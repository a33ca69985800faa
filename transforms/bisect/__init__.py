"""Finds where a result goes wrong: which pass, or else which node of the lowered program."""

from transforms.bisect.divergence import Divergence, Runner, Stage
from transforms.bisect.search import locate

__all__ = ["Divergence", "Runner", "Stage", "locate"]
