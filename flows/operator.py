"""What the operator of a worker decides, and nobody who only sees a form in the UI."""

from __future__ import annotations

import os

from prefect.logging import get_run_logger
from prefect.runtime import deployment

__all__ = ["FACTORIES_VARIABLE", "factories_allowed"]

FACTORIES_VARIABLE = "MENAGERIE_ALLOW_FACTORIES"


def factories_allowed(*, asked: bool) -> bool:
    """Whether a run may call builders that manifest entries name, which is foreign code.

    Who starts a run from the command line is the operator and decides alone. On a worker its
    operator must have agreed too, with `MENAGERIE_ALLOW_FACTORIES=1` in its environment: whoever
    may fill in a form need not be one who may run code there.

    Args:
        asked: whether the run's parameters ask for it.
    """
    if not asked or deployment.id is None:
        return asked
    if os.environ.get(FACTORIES_VARIABLE) == "1":
        return True
    get_run_logger().warning(
        "Factories are off on this worker. Its operator may set %s=1", FACTORIES_VARIABLE
    )
    return False
