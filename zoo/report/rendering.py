"""Filling in the templates of pages: style and pictures inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from menagerie import figures
from zoo.report.graphs import style as graph_style
from zoo.report.phrases import beside_truth, demand

__all__ = ["render"]

_REPORTS = Path(__file__).parent / "templates"


def render(template: str, *, folder: Path = _REPORTS, script: str = "", **values: object) -> str:
    """Fills a template.

    The page's policy admits its one style sheet and `script` by their hashes, and nothing else.

    Args:
        template: name of a file in `folder`, which may extend or import the reports' own.
        folder: of templates.
        script: what runs in it; empty: none may.
        values: what the template names.
    """
    style = (_REPORTS / "style.css").read_text(encoding="utf-8") + graph_style()
    scripts = f"script-src {_hash(script)}; " if script else ""
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; {scripts}img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment(folder).get_template(template)
    ours = {"style": Markup(style), "script": Markup(script)}  # noqa: S704 - our own files
    return page.render(ours, policy=policy, **values)


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, _REPORTS]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(figures, name) for name in figures.__all__}
    environment.globals |= {
        "speed": figures.speed,
        "count": figures.count,
        "demand": demand,
        "beside_truth": beside_truth,
    }
    return environment
