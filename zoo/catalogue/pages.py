"""The catalogue's pages: a list that can be searched, and one page a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.catalogue.plots import plots
from zoo.catalogue.precisions import side_by_side
from zoo.catalogue.snippets import Snippet, snippets
from zoo.report.page import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from zoo.catalogue.records import CataloguedFile, CataloguedModel, CataloguedRelease, History
    from zoo.catalogue.ways import Way

__all__ = ["render_catalogue", "render_model"]

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Row:
    """A line of the list: a model's latest release for a platform."""

    model: CataloguedModel
    history: History
    release: CataloguedRelease


@dataclass(frozen=True)
class _Platform:
    """A section of a model's page."""

    history: History
    release: CataloguedRelease | None
    plots: list[tuple[str, Markup]]
    snippets: tuple[Snippet, ...]

    @property
    def bill(self) -> CataloguedFile | None:
        """The bill of materials, which releases of earlier versions lack."""
        return next((f for f in self.history.files if f.name.endswith(".cdx.json")), None)


def render_catalogue(models: Sequence[CataloguedModel], way: Way) -> str:
    """The page that lists the latest release of every model for every platform."""
    rows = [
        _Row(model, history, history.current)
        for model in sorted(models, key=lambda model: model.name)
        for history in model.histories
        if history.current is not None
    ]
    return render(
        "catalogue.html.j2",
        folder=_TEMPLATES,
        script=(_TEMPLATES / "search.js").read_text(encoding="utf-8"),
        way=way,
        first_lines=_first_lines([(row.model, row.history) for row in rows], way),
        rows=rows,
        models=len({row.model.name for row in rows}),
        targets=sorted({row.history.target for row in rows}),
        licences=sorted({row.model.licence for row in rows}),
    )


def render_model(name: str, known: Mapping[str, CataloguedModel], way: Way) -> str:
    """The page of a model.

    Args:
        name: which one.
        known: all models of the catalogue, of which it may be a precision's.
        way: how its readers get to other pages, to files and to the store.
    """
    model = known[name]
    platforms = [
        _Platform(history, history.current, plots(history), snippets(model, history, way.store))
        for history in model.histories
    ]
    sides = side_by_side(name, known)
    return render(
        "model.html.j2",
        folder=_TEMPLATES,
        way=way,
        first_lines=_first_lines([(model, h) for h in model.histories if h.current], way),
        model=model,
        platforms=platforms,
        sides=sides,
    )


def _first_lines(latest: Sequence[tuple[CataloguedModel, History]], way: Way) -> str:
    """For one of these releases, first of all one for which there is a wheel; empty without any."""
    chosen = sorted(latest, key=lambda each: way.site.wheel_for(each[1].platform) is None)[:1]
    return "".join(way.first_lines(*each) for each in chosen)
