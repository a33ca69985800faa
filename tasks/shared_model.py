"""One model for several targets: it is pulled and exported once."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.job import Job
    from tasks.stages import Hold, ModelHolder


@contextmanager
def shared_model(hold: Hold) -> Iterator[Hold]:
    """In the block, what holds a model goes on with its next job, unless one has failed with it.

    Args:
        hold: starts what holds the model of a job.

    Returns:
        What is to be used instead of `hold`, for one job at a time.
    """
    with ExitStack() as held:
        model: ModelHolder | None = None

        @contextmanager
        def go_on(job: Job) -> Iterator[ModelHolder]:
            nonlocal model
            if model is None or not model.turn_to(job):
                held.close()
                model = held.enter_context(hold(job))
            try:
                yield model
            except BaseException:
                model = None
                held.close()
                raise

        yield go_on
