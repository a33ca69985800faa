"""Failures that cross a process boundary, and a test for those that a retry may fix."""

from __future__ import annotations

from pathlib import Path

from zoo import errors
from zoo.base_models import Frozen
from zoo.errors import MenagerieError, explain

_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class ProcessDied(MenagerieError):
    """The process that held the model died before its stage was done."""


class StageTimedOut(MenagerieError):
    """A stage exceeded its time limit and was stopped."""


class Failure(Frozen):
    """An exception as JSON, with enough to raise it again in another process."""

    kind: str
    place: str
    fact: str
    next_step: str = ""
    transient: bool = False

    @classmethod
    def of(cls, error: BaseException, place: str) -> Failure:
        """Describe `error`; one that is not a MenagerieError is attributed to `place`."""
        ours = explain(error, place)
        return cls(
            kind=type(ours).__name__,
            place=ours.place,
            fact=ours.fact,
            next_step=ours.next_step,
            transient=is_transient(error),
        )

    def exception(self) -> MenagerieError:
        """Return the error to raise, of its class or the nearest base that takes three texts."""
        named = getattr(errors, self.kind, None)
        kind: type[MenagerieError] = MenagerieError
        if isinstance(named, type) and issubclass(named, MenagerieError):
            kind = named
        while kind.__init__ is not MenagerieError.__init__:
            kind = kind.__mro__[1]
        error = kind(self.place, self.fact, self.next_step)
        if self.transient:
            error.__cause__ = ConnectionError(self.fact)
        return error


def last_line(log: Path) -> str:
    """Return the last line of a process's log."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed, because a cause is a network that did not answer."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (errors.StoreUnreachable, ConnectionError, TimeoutError)):
            return True
        if isinstance(seen, OSError) and seen.errno is None and not isinstance(seen, _LASTING):
            return True  # URLError and requests' exceptions are OSErrors without a number
        seen = seen.__cause__ or seen.__context__
    return False
