"""What the worker tells its caller: JSON lines over one pipe.

The order of events in a line-by-line stream is what makes a crash attributable: the last `Step`
is where the worker was when it died, and the `Finding`s are what had been proven by then.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Literal

from menagerie.typed_json import check, load, plain
from menagerie.validation.records import (  # typed_json reads them
    ProgramValidation,  # noqa: TC001
    ValidationReport,  # noqa: TC001
)

__all__ = ["Event", "Finding", "Outcome", "Sender", "Step", "parse_event"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """The worker is about to do something, e.g. `program main, case 1`."""

    kind: Literal["step"] = "step"
    place: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A program's golden cases have been judged."""

    kind: Literal["finding"] = "finding"
    program: ProgramValidation


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The worker is done; the last event."""

    kind: Literal["outcome"] = "outcome"
    report: ValidationReport


Event = Step | Finding | Outcome
_KINDS = {"step": Step, "finding": Finding, "outcome": Outcome}


def parse_event(line: bytes) -> Event:
    """Reads one line.

    Raises:
        Malformed: it is not an event.
    """
    fields = load(line)
    kind = fields.get("kind") if isinstance(fields, dict) else None
    event: Event = check(_KINDS.get(kind if isinstance(kind, str) else "", Step), fields)
    return event


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

    def _send(self, event: Event) -> None:
        data = json.dumps(plain(event), allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]
