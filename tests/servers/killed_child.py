"""A child process that kills itself at one of its steps."""

from __future__ import annotations

import itertools
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def killed_at(number: int, work: Callable[[Callable[[], None]], object]) -> bool:
    """Run `work` in a child, with a function to call at each step; SIGKILL it at step `number`.

    Return whether it was killed; False means that `work` ended in fewer steps.
    """
    child = os.fork()
    if child == 0:
        steps = itertools.count(1)

        def step() -> None:
            if next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            work(step)
        except BaseException:  # noqa: BLE001 - a child of a fork must never return into pytest
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False
