"""Names that processes of different ages agree on: in a server's database, in files of events."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["MOST_ATTEMPTS", "EventKind", "FlowName"]

MOST_ATTEMPTS = 3  # of a run that crashes, as in infra/automations.yaml


class FlowName(StrEnum):
    """What Prefect calls our flows."""

    CONVERT_ZOO = "convert-zoo"
    CONVERT_BATCH = "convert-batch"
    CONVERT_MODEL = "convert-model"
    CONFIRM_RELEASE = "confirm-release"
    VERIFY_RELEASES = "verify-releases"
    REBUILD_RELEASE = "rebuild-release"
    COLLECT_GARBAGE = "collect-garbage"


class EventKind(StrEnum):
    """What has ended."""

    STAGE = "stage"
    MODEL = "model"
