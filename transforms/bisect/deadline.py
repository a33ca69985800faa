"""How long a search may go on."""

from __future__ import annotations

import math
import time

from zoo.errors import MenagerieError

__all__ = ["Deadline"]


class Deadline:
    """A moment after which a search makes do with what it knows.

    Args:
        seconds: from now on; None: for ever.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = time.monotonic() + (math.inf if seconds is None else seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end

    def check(self, what: str) -> None:
        """Raise MenagerieError when it is over; `what` did not come about in time."""
        if self.passed:
            raise MenagerieError("bisect", f"the time was up before {what}")
