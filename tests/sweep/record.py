"""What came of a case on a target, as the results' file holds it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

RecordT = TypeVar("RecordT", bound="DataclassInstance")

RESULTS = Path(__file__).with_name("results.json")

State = Literal[
    "proven",  # the artifact agreed with eager
    "refused",  # one of our errors: place, fact and next step
    "wrong",  # converted, and its numbers are not eager's
    "failed",  # another exception than ours: a fault
    "out of time",
    "crashed",  # the process ended by a signal, or was out of memory
    "does not run",  # eager itself fails here
]


@dataclass(frozen=True)
class Record:
    """One row.

    Attributes:
        state: see `State`.
        exported: whether torch.export by itself exports it at fixed sizes; None: unknown.
        parameters: how many.
        seconds: that the conversion took, all attempts together.
        snr_db: signal to noise of the worst output against eager; None where there is no proof.
        dynamic: names of the sizes that vary in the proven artifact, with their ranges.
        narrowed: why more of them do not; empty where all do.
        missing: operators that the target's runtime has no kernel for.
        error: the class of what was raised.
        text: what it said.
    """

    state: State
    exported: bool | None = None
    parameters: int = 0
    seconds: float = 0.0
    snr_db: float | None = None
    dynamic: tuple[str, ...] = ()
    narrowed: str = ""
    missing: tuple[str, ...] = ()
    error: str = ""
    text: str = ""

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Record:
        """Of what JSON made of one."""
        lists = {name: tuple(fields.get(name, ())) for name in ("dynamic", "missing")}
        return cls(**{**fields, **lists})


class Kept(Generic[RecordT]):
    """Records by target and case, in a file that is written after each: so a run resumes.

    Args:
        path: of the file, JSON.
        read: makes a record of what JSON made of its fields.
    """

    def __init__(self, path: Path, read: Callable[[dict[str, Any]], RecordT]) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self.records: dict[str, dict[str, RecordT]] = {
            target: {name: read(fields) for name, fields in rows.items()}
            for target, rows in held.items()
        }

    def of(self, target: str, name: str) -> RecordT | None:
        """What came of a case, if it was tried."""
        return self.records.get(target, {}).get(name)

    def add(self, target: str, name: str, record: RecordT) -> None:
        """Keep a record, in the place of an older one."""
        self.records.setdefault(target, {})[name] = record
        made = {
            target: {name: dataclasses.asdict(rows[name]) for name in sorted(rows)}
            for target, rows in sorted(self.records.items())
        }
        fresh = self._path.with_suffix(".partial")
        fresh.write_text(json.dumps(made, indent=1) + "\n")
        fresh.replace(self._path)


class Results(Kept[Record]):
    """The sweep's."""

    def __init__(self, path: Path = RESULTS) -> None:
        super().__init__(path, Record.read)
