"""Finds where a result goes wrong: which pass, or else which node of the lowered program."""

from transforms.bisect.diagnosis import diagnose
from transforms.bisect.divergence import Runner
from transforms.bisect.search import locate

__all__ = ["Runner", "diagnose", "locate"]
