"""How long models took when they were converted last, to share out the work of the next run."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from flows.outcome.results import Outcome
from flows.work import replace_text
from menagerie.paths import home

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from flows.outcome.results import ModelResult

_log = logging.getLogger(__name__)


def known_seconds() -> Mapping[tuple[str, str], float]:
    """Seconds by model and target; empty where nothing is known, or the file is damaged."""
    try:
        found = json.loads(_file().read_text())
        return {
            (model, target): float(seconds)
            for model, targets in found.items()
            for target, seconds in targets.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember_seconds(results: Iterable[ModelResult]) -> None:
    """Keep what the published models of a run took; where that fails, a warning."""
    seconds = dict(known_seconds())
    for row in results:
        if row.outcome in (Outcome.PUBLISHED, Outcome.PROVEN):
            seconds[row.model, row.target] = round(row.seconds, 1)
    nested: dict[str, dict[str, float]] = {}
    for (model, target), taken in sorted(seconds.items()):
        nested.setdefault(model, {})[target] = taken
    try:
        replace_text(_file(), json.dumps(nested, indent=1))
    except OSError as error:
        _log.warning("What models took could not be kept: %s", error)


def _file() -> Path:
    return home() / "seconds.json"
