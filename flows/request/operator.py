"""What the operator of a machine decides, and nobody who only sees a form in the UI."""

from __future__ import annotations

import os

from prefect.logging import get_run_logger

from flows.request.own_models import submission_digest

__all__ = ["FACTORIES_VARIABLE", "SUBMITTED_VARIABLE", "factories_allowed"]

FACTORIES_VARIABLE = "MENAGERIE_ALLOW_FACTORIES"
SUBMITTED_VARIABLE = "MENAGERIE_ALLOW_SUBMITTED"


def factories_allowed(manifest: str, *, asked: bool) -> bool:
    """Whether a run may call builders that manifest entries name, which is foreign code.

    Besides the run's parameters the operator of the machine must want it, by
    `MENAGERIE_ALLOW_FACTORIES=1` in the environment: whoever may fill in a form need not be one
    who may run code there. `zoo convert --allow-factories` sets it for its own process.

    The code of a submission runs without being asked for where the operator listed its digest in
    `MENAGERIE_ALLOW_SUBMITTED`, with commas between several; `*` there stands for all of them.

    Args:
        manifest: the run's, as in its options.
        asked: whether the run's parameters ask for it.
    """
    digest = submission_digest(manifest)
    listed = {each.strip() for each in os.environ.get(SUBMITTED_VARIABLE, "").split(",")}
    if digest is not None and listed & {digest, f"sha256:{digest}", "*"}:
        return True
    allowed = os.environ.get(FACTORIES_VARIABLE) == "1"
    if asked and not allowed:
        get_run_logger().warning(
            "Factories are off on this machine. Its operator may set %s=1", FACTORIES_VARIABLE
        )
    return asked and allowed
