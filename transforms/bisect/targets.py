"""How a piece of a program is lowered and run, by target."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transforms.bisect.divergence import Runner
    from zoo.spec import Target

__all__ = ["runner"]


def runner(target: Target) -> Runner:
    """What lowers and runs programs on `target`, emulated where there is no such device."""
    from transforms.cpu_run import run_piece  # which needs this package itself

    return functools.partial(run_piece, target=target)
