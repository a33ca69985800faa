"""Progress inside a stage of a conversion: its steps, reported to a listener as they are done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from zoo.base_models import Frozen

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PROGRESS: ContextVar[_Listening | None] = ContextVar("progress", default=None)


class StepDone(Frozen):
    """Something that was done inside a stage, or that begins there and takes long."""

    text: str  # e.g. `program main: 31 kernels generated`
    share: float  # of the stage that is done, 0 to 1
    begins: bool = False  # whether it takes long and begins: it is shown at once, also in a pipe


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


def report_step(text: str, share: float = 1.0, *, begins: bool = False) -> None:
    """Report to the listener that a step is done, or begins; no full stop at the end.

    The share is of the part of the stage that is at work (`in_parts`), or of the whole stage. Where
    nobody listens, what begins is logged as a warning: else it would seem to hang.
    """
    if (listening := _PROGRESS.get()) is not None:
        done = listening.start + listening.width * share
        listening.listener(StepDone(text=text, share=done, begins=begins))
    elif begins:
        _log.warning("%s", text)


def in_parts(items: Iterable[T], start: float = 0.0, end: float = 1.0) -> Iterator[T]:
    """Yield each of `items`, of which steps reported meanwhile are a part, between two shares."""
    known = tuple(items)
    listening = _PROGRESS.get() or _Listening(lambda _: None)
    listening.width = (end - start) / max(len(known), 1)
    for number, item in enumerate(known):
        listening.start = start + listening.width * number
        yield item
    listening.start, listening.width = 0.0, 1.0
