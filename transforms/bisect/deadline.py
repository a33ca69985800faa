"""How long a search may go on."""

from __future__ import annotations

import math
import time

__all__ = ["Deadline"]


class Deadline:
    """A moment after which a search makes do with what it knows.

    Args:
        seconds: from now on; None: for ever.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._end = time.monotonic() + self.seconds

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end
