"""Progress inside a stage of a conversion: its steps, reported to a listener as they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from zoo.base_models import Frozen

T = TypeVar("T")
_PROGRESS: ContextVar[_Listening | None] = ContextVar("progress", default=None)


class StepDone(Frozen):
    """Something that was done inside a stage."""

    text: str  # e.g. `program main: 31 kernels generated`
    share: float  # of the stage that is done, 0 to 1


@dataclass
class _Listening:
    """The listener to steps, and which share of the stage is at work."""

    listener: Callable[[StepDone], None]
    start: float = 0.0
    width: float = 1.0


@contextmanager
def progress_to(listener: Callable[[StepDone], None]) -> Iterator[None]:
    """Report each step of a stage to the listener in the block, in the stage's thread."""
    token = _PROGRESS.set(_Listening(listener))
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def report_step(text: str, share: float = 1.0) -> None:
    """Report to the listener, if there is one, that a step is done; no full stop at the end.

    The share is of the part of the stage that is at work (`in_parts`), or of the whole stage.
    """
    if (listening := _PROGRESS.get()) is not None:
        done = listening.start + listening.width * share
        listening.listener(StepDone(text=text, share=done))


def in_parts(items: Iterable[T], start: float = 0.0, end: float = 1.0) -> Iterator[T]:
    """Yield each of `items`, of which steps reported meanwhile are a part, between two shares."""
    known = tuple(items)
    listening = _PROGRESS.get() or _Listening(lambda _: None)
    listening.width = (end - start) / max(len(known), 1)
    for number, item in enumerate(known):
        listening.start = start + listening.width * number
        yield item
    listening.start, listening.width = 0.0, 1.0
