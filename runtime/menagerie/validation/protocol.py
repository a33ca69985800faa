"""What the worker tells its caller: JSON lines over one pipe.

The order of events in a line-by-line stream is what makes a crash attributable: the last `Step`
is where the worker was when it died, and the `Finding`s are what had been proven by then.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from zoo.records import ProgramValidation, ValidationReport

__all__ = ["Event", "Finding", "Outcome", "Sender", "Step", "parse_event"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Step(_Event):
    """The worker is about to do something, e.g. `program main, case 1`."""

    kind: Literal["step"] = "step"
    place: str


class Finding(_Event):
    """A program's golden cases have been judged."""

    kind: Literal["finding"] = "finding"
    program: ProgramValidation


class Outcome(_Event):
    """The worker is done; the last event."""

    kind: Literal["outcome"] = "outcome"
    report: ValidationReport


Event = Annotated[Step | Finding | Outcome, Field(discriminator="kind")]
_EVENT: TypeAdapter[Step | Finding | Outcome] = TypeAdapter(Event)


def parse_event(line: bytes) -> Step | Finding | Outcome:
    """Reads one line; raises pydantic's ValidationError when it is not an event."""
    return _EVENT.validate_json(line)


class Sender:
    """The worker's end of the pipe; every event is with the caller before the next thing happens.

    Args:
        descriptor: the pipe's writing end.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # what the artifact may spawn has no part in it
        self._descriptor = descriptor
        self.place = ""
        self.findings: list[ProgramValidation] = []

    def step(self, place: str) -> None:
        """Announces what is done next."""
        self.place = place
        self._send(Step(place=place))

    def finding(self, program: ProgramValidation) -> None:
        """Reports one program's judgement."""
        self.findings.append(program)
        self._send(Finding(program=program))

    def outcome(self, report: ValidationReport) -> None:
        """Reports the whole judgement."""
        self._send(Outcome(report=report))

    def _send(self, event: _Event) -> None:
        data = event.model_dump_json().encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
