"""All cases of the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sweep import optional, transformers_cases, vision

if TYPE_CHECKING:
    from tests.sweep.case import Case


def catalogue() -> dict[str, Case]:
    """The cases by name."""
    made = [*vision.cases(), *transformers_cases.cases(), *optional.cases()]
    return {case.name: case for case in made}
