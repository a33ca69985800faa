"""Models that are one entry in several precisions, found by their names, for a table of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.precision import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zoo.catalogue.records import CataloguedModel, CataloguedRelease

__all__ = ["Side", "siblings", "side_by_side"]


@dataclass(frozen=True)
class Side:
    """A precision's latest release for a platform."""

    model: str
    precision: Precision
    platform: str
    release: CataloguedRelease


def siblings(name: str, known: Mapping[str, CataloguedModel]) -> dict[Precision, str]:
    """The models of the entry that `name` is of, itself among them, float32 first.

    An entry's variant is called as it is, `_` and the precision; without the entry itself, such a
    name says nothing.
    """
    suffixes = {p: f"_{p.suffix}" for p in Precision}
    base = next((stem for s in suffixes.values() if (stem := name.removesuffix(s)) != name), name)
    if base not in known:
        return {Precision.FLOAT32: name}
    named = {p: base + suffix for p, suffix in suffixes.items() if p is not Precision.FLOAT32}
    return {Precision.FLOAT32: base, **{p: n for p, n in named.items() if n in known}}


def side_by_side(name: str, known: Mapping[str, CataloguedModel]) -> list[Side]:
    """The latest releases of all precisions, by platform; empty where there is one precision."""
    found = [
        Side(sibling, precision, history.platform, history.current)
        for precision, sibling in siblings(name, known).items()
        for history in known[sibling].histories
        if history.current is not None
    ]
    if len({side.precision for side in found}) < 2:  # noqa: PLR2004 - nothing to compare
        return []
    return sorted(found, key=lambda side: side.platform)
