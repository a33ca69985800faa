"""`zoo report`."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.bundles import bundle_at, model_name
from flows.cli.options import (
    JsonOption,
    StoreOption,
    TargetOption,
    UnsignedOption,
    complete_models,
    store_url,
)
from flows.cli.output import emit, results
from zoo.errors import ArtifactError

__all__ = ["report"]

_FILES = ("report.json", "report.html")  # in the order in which they are written


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|DIR",
            help="The name of a converted model, or a bundle's folder.",
            autocompletion=complete_models,
        ),
    ],
    *,
    target: TargetOption = "cpu",
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where the report page of a conversion lies, or print the report as JSON.

    A model's last conversion here is looked at first, then its latest release in the store. One
    that failed before it was validated has a page too; the JSON is that of the last verdict.

    **Examples**

    - `zoo report resnet18 --open`
    - `zoo report out --json | jq .validation.verdict`
    """
    folder = _folder(what, target, store_url(store))
    page = _page(folder)
    if as_json:
        emit(json.loads((_with_report(folder) / "report.json").read_text()))
    else:
        results().print(str(page))
    if open_it:
        webbrowser.open(page.resolve().as_uri())


def _page(folder: Path) -> Path:
    """The page of a conversion: of its failure, where the last one came to no verdict."""
    from zoo.report import FAILURE_PAGE

    failure = folder / FAILURE_PAGE
    return failure if failure.is_file() else folder / "report.html"


def _folder(what: str, target: str, store: str) -> Path:
    """The folder that holds report.json and report.html."""
    from flows.outcome.reports import report_folder

    if Path(what).is_dir():
        return _with_report(Path(what))
    converted = report_folder(model_name(what), target)
    if _page(converted).is_file():
        return converted
    return _released(what, target, store)


def _with_report(folder: Path) -> Path:
    if all((folder / name).is_file() for name in _FILES):
        return folder
    raise ArtifactError(str(folder), "holds no report", "Name a bundle made by `zoo convert`")


def _released(model: str, target: str, store: str) -> Path:
    """A copy of the report of the model's latest release, fetched unless it is here already.

    It lies apart from the reports of conversions made here, under the hash of the release: a later
    release, or that of another store, has another.
    """
    from flows.work import replace_text
    from menagerie.durable import disk_errors, make_folders
    from menagerie.paths import home
    from zoo.store import open_store

    release = open_store(store).find(model, target)
    folder = home() / "fetched" / f"{model}-{target}-{release.digest[:16]}"
    if not (folder / "report.html").is_file():
        with bundle_at(model, target, store) as bundle:
            contents = {name: (_with_report(bundle) / name).read_text() for name in _FILES}
        with disk_errors(folder, sum(map(len, contents.values()))):
            make_folders(folder)
            for name, content in contents.items():
                replace_text(folder / name, content)
    return folder
