"""What the operator of a machine decides, and nobody who only sees a form in the UI."""

from __future__ import annotations

import os

from prefect.logging import get_run_logger

__all__ = ["FACTORIES_VARIABLE", "factories_allowed"]

FACTORIES_VARIABLE = "MENAGERIE_ALLOW_FACTORIES"


def factories_allowed(*, asked: bool) -> bool:
    """Whether a run may call builders that manifest entries name, which is foreign code.

    Besides the run's parameters the operator of the machine must want it, by
    `MENAGERIE_ALLOW_FACTORIES=1` in the environment: whoever may fill in a form need not be one
    who may run code there. `zoo convert --allow-factories` sets it for its own process.

    Args:
        asked: whether the run's parameters ask for it.
    """
    allowed = os.environ.get(FACTORIES_VARIABLE) == "1"
    if asked and not allowed:
        get_run_logger().warning(
            "Factories are off on this machine. Its operator may set %s=1", FACTORIES_VARIABLE
        )
    return asked and allowed
