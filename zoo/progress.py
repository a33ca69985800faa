"""Progress within a stage of a conversion: steps reported to a listener when they are done."""

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
    """A step of a stage that is done, or that begins and takes long."""

    text: str  # e.g. `program main: 31 kernels generated`
    share: float  # of the stage that is done, from 0 to 1
    begins: bool = False  # whether a long step begins; it is shown at once, even in a pipe


@dataclass
class _Listening:
    """The listener to steps, and the share of the stage that is running."""

    listener: Callable[[StepDone], None]
    start: float = 0.0
    width: float = 1.0


@contextmanager
def progress_to(listener: Callable[[StepDone], None]) -> Iterator[None]:
    """Report each step inside the block to the listener, in the stage's thread."""
    token = _PROGRESS.set(_Listening(listener))
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def report_step(text: str, share: float = 1.0, *, begins: bool = False) -> None:
    """Report to the listener that a step is done, or begins; `text` has no full stop.

    `share` relates to the running part of the stage (`in_parts`), or to the whole stage. Without a
    listener, a step that begins is logged as a warning, so that it does not seem to hang.
    """
    if (listening := _PROGRESS.get()) is not None:
        done = listening.start + listening.width * share
        listening.listener(StepDone(text=text, share=done, begins=begins))
    elif begins:
        _log.warning("%s", text)


def in_parts(items: Iterable[T], start: float = 0.0, end: float = 1.0) -> Iterator[T]:
    """Yield `items`; steps reported meanwhile are a part of the current one's share of progress."""
    known = tuple(items)
    listening = _PROGRESS.get() or _Listening(lambda _: None)
    listening.width = (end - start) / max(len(known), 1)
    for number, item in enumerate(known):
        listening.start = start + listening.width * number
        yield item
    listening.start, listening.width = 0.0, 1.0
