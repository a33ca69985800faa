"""Who wants to hear how a run goes: the command line's live display, or nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flows.outcome.results import ModelResult
    from tasks.job import Stage

__all__ = ["Listener", "Recorder", "SilentListener"]


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


class SilentListener:
    """A listener that does nothing."""

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """Ignore it."""

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Ignore it."""

    def model_ended(self, result: ModelResult) -> None:
        """Ignore it."""


class Recorder:
    """Keeps the row of every model, and passes all on to another listener.

    A row got so does not depend on Prefect's API, whose answer to a final state can get lost.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.rows: dict[tuple[str, str], ModelResult] = {}

    def stage_began(self, model: str, target: str, stage: Stage) -> None:
        """Pass it on."""
        self._listener.stage_began(model, target, stage)

    def stage_ended(self, model: str, target: str, stage: Stage, seconds: float) -> None:
        """Pass it on."""
        self._listener.stage_ended(model, target, stage, seconds)

    def model_ended(self, result: ModelResult) -> None:
        """Keep it and pass it on."""
        self.rows[result.model, result.target] = result
        self._listener.model_ended(result)
