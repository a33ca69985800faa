"""Computing in a fork of this process while it does something else."""

from __future__ import annotations

import multiprocessing
import tempfile
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["beside"]

T = TypeVar("T")


def beside(work: Callable[[], T], classes: Sequence[type]) -> Callable[[], T]:
    """Begin `work` in a fork of this process; the function returned waits for what it gives.

    A process and not a thread, since torch.export changes `nn.Module` for all threads as it traces.
    This one must not have computed with several threads: a fork has only the one that calls it.

    Args:
        work: what it changes in memory, it changes in the fork alone. Where it raises, or its
            process dies, it is done again in this process, to the same end.
        classes: of objects in its result, besides tensors, numbers, text, lists and dictionaries.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the result is read

    def write() -> None:
        torch.save(work(), file)
        file.flush()

    process = multiprocessing.get_context("fork").Process(target=write, daemon=True)
    process.start()

    def result() -> T:
        with file:
            process.join()
            if process.exitcode != 0:
                return work()
            file.seek(0)
            with torch.serialization.safe_globals(list(classes)):
                found: T = torch.load(file, weights_only=True)
            return found

    return result
