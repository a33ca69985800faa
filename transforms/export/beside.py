"""Computing in a fork of this process while it does something else."""

from __future__ import annotations

import os
import tempfile
from typing import IO, TYPE_CHECKING, NoReturn, TypeVar

import torch

from menagerie import process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    caller = os.getpid()
    process = os.fork()
    if process == 0:
        _write(work, file, caller)

    def result() -> T:
        with file:
            if os.waitpid(process, 0)[1] != 0:
                return work()
            file.seek(0)
            with torch.serialization.safe_globals(list(classes)):
                found: T = torch.load(file, weights_only=True)
            return found

    return result


def _write(work: Callable[[], object], file: IO[bytes], caller: int) -> NoReturn:
    """The fork's own end: nothing else of this process is closed or flushed in it.

    As `multiprocessing` would: it closes standard input, which a thread that is not here may hold.
    """
    code = 1
    try:
        # Else it would keep the pipes open by which others see that its parent was killed.
        process.end_with(caller)
        torch.save(work(), file)
        file.flush()
        code = 0
    finally:
        os._exit(code)
