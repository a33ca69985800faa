"""One model for its targets: what holds it goes on, until something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from toy_zoo import ToyModel

from tasks.stage_table import shared_model

if TYPE_CHECKING:
    from tasks.job import Job


class _Switching(ToyModel):
    """Records the jobs that it is given."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.jobs, self.ended = [job], False

    def switch_to(self, job: Job) -> bool:
        self.jobs.append(job)
        return True

    def __exit__(self, *_: object) -> None:
        self.ended = True


def test_the_next_target_is_the_same_holders(job: Job) -> None:
    """It ends with the block, not with the first job."""
    other = job.model_copy(update={"target": "metal"})
    with shared_model(_Switching) as hold:
        with hold(job) as first:
            pass
        assert isinstance(first, _Switching)
        assert not first.ended
        with hold(other) as second:
            assert second is first
        assert first.jobs == [job, other]
    assert first.ended


def test_after_a_failure_the_next_target_begins_anew(job: Job) -> None:
    """Whatever failed may have left the model in any state."""
    with shared_model(_Switching) as hold:
        with pytest.raises(ValueError, match="no"), hold(job) as first:
            raise ValueError("no")
        assert isinstance(first, _Switching)
        assert first.ended
        with hold(job) as second:
            assert second is not first


def test_a_model_that_does_not_switch_is_followed_by_another(job: Job) -> None:
    """As a process that died is."""
    with shared_model(ToyModel) as hold:
        with hold(job) as first:
            pass
        with hold(job) as second:
            assert second is not first
