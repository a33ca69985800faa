"""What goes on inside a stage of a conversion: steps, told to whoever waits where they are done."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from zoo.base_models import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


class StepDone(Frozen):
    """Something that was done inside a stage."""

    text: str  # e.g. `program main: 31 kernels generated`
    share: float  # of the stage that is done, 0 to 1


@dataclass
class _Heard:
    """Who hears of steps, and which share of the stage is at work."""

    listener: Callable[[StepDone], None]
    start: float = 0.0
    width: float = 1.0


_PROGRESS: ContextVar[_Heard | None] = ContextVar("progress", default=None)


@contextmanager
def progress_to(listener: Callable[[StepDone], None]) -> Iterator[None]:
    """In the block, the listener hears of each step of a stage, in the thread that does it."""
    token = _PROGRESS.set(_Heard(listener))
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def say(text: str, share: float = 1.0) -> None:
    """Tell who listens that a step is done.

    Args:
        text: a sentence without its full stop.
        share: of the part of the stage that is at work (`in_parts`), or of the whole stage.
    """
    if (heard := _PROGRESS.get()) is not None:
        heard.listener(StepDone(text=text, share=heard.start + heard.width * share))


def in_parts(items: Iterable[T], start: float = 0.0, end: float = 1.0) -> Iterator[T]:
    """Each of `items`, of which steps that are said meanwhile are a part, between two shares."""
    known = tuple(items)
    heard = _PROGRESS.get() or _Heard(lambda _: None)
    heard.width = (end - start) / max(len(known), 1)
    for number, item in enumerate(known):
        heard.start = start + heard.width * number
        yield item
    heard.start, heard.width = 0.0, 1.0
