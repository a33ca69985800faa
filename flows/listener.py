"""Who wants to hear how a run goes: the command line's live display, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flows.results import ModelResult
    from tasks.job import Stage

__all__ = ["Listener", "Silence"]


class Listener(Protocol):
    """Told of every stage, from whichever thread the model is converted in."""

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """A stage of this model begins."""
        ...

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """It succeeded, in so many seconds."""
        ...

    def model_ended(self, result: ModelResult) -> None:
        """All is over for this model, one way or another."""
        ...


class Silence:
    """A listener that does nothing."""

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """Ignore it."""

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Ignore it."""

    def model_ended(self, result: ModelResult) -> None:
        """Ignore it."""
