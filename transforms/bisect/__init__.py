"""Find where a result goes wrong: in which pass, or in which node of the lowered program."""

from transforms.bisect.search import diagnose, locate

__all__ = ["diagnose", "locate"]
