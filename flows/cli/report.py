"""`zoo report`."""

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.bundles import bundle_at, model_name
from flows.cli.options import JsonOption, StoreOption, TargetOption, complete_models, store_url
from flows.cli.output import emit, results
from zoo.errors import ArtifactError
from zoo.spec import Target

__all__ = ["report"]


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
    target: TargetOption = Target.CPU,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where the report page of a conversion lies, or print the report as JSON.

    A model's last conversion here is looked at first, then its latest release in the store.

    **Examples**

    - `zoo report resnet18 --open`
    - `zoo report out --json | jq .validation.verdict`
    """
    folder = _folder(what, target.value, store_url(store))
    page = folder / "report.html"
    if as_json:
        emit(json.loads((folder / "report.json").read_text()))
    else:
        results().print(str(page))
    if open_it:
        webbrowser.open(page.resolve().as_uri())


def _folder(what: str, target: str, store: str) -> Path:
    """The folder that holds report.json and report.html."""
    from flows.outcome.reports import report_folder

    if Path(what).is_dir():
        folder = Path(what)
        if not (folder / "report.html").is_file() or not (folder / "report.json").is_file():
            raise ArtifactError(what, "holds no report", "Name a bundle made by `zoo convert`")
        return folder
    kept = report_folder(model_name(what), target)
    if not (kept / "report.html").is_file():
        _fetch(what, target, store, kept)
    return kept


def _fetch(model: str, target: str, store: str, folder: Path) -> None:
    """Copy the report out of the model's latest release."""
    import shutil

    with bundle_at(model, target, store) as bundle:
        _folder(str(bundle), target, store)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("report.json", "report.html"):
            shutil.copyfile(bundle / name, folder / name)
