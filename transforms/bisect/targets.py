"""How each target lowers and runs a piece of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.spec import Target

if TYPE_CHECKING:
    from transforms.bisect.divergence import Runner

__all__ = ["runner"]


def runner(target: Target) -> Runner:
    """What lowers and runs programs on `target`.

    Raises:
        UsageError: if programs cannot be run there yet.
    """
    if target is Target.CPU:
        from transforms.cpu_run import run_on_cpu

        return run_on_cpu
    raise UsageError("bisect", f"pieces of a program cannot be run on {target}")
