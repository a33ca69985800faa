"""`zoo catalog`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, store_url
from flows.cli.output import emit, messages, results
from zoo.errors import UsageError

__all__ = ["catalog"]


def catalog(
    *,
    model: Annotated[
        list[str] | None, typer.Option(help="Only its page and the list; once for each.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the site of all promoted releases anew, in the store beside them.

    Each promotion does it for its own model. The pages are static: they work from a folder and
    from any server, and link the very files of the store.

    **Examples**

    - `zoo catalog --open`
    - `zoo catalog --store s3://models/zoo`
    """
    from zoo.catalogue import INDEX, update_catalogue
    from zoo.store import open_store
    from zoo.store.base import HTML, LINK_SECONDS

    opened = open_store(store_url(store))
    with messages().status("drawing the catalogue"):
        models = update_catalogue(opened, model)
    name = "catalogue.html"
    address = opened.objects.link(INDEX, name, HTML, LINK_SECONDS)
    place = address or str(Path(opened.url.removeprefix("file://")) / INDEX)
    if as_json:
        emit({"models": models, "index": place})
    else:
        results().print(place, markup=False)
    if open_it:
        if address is None and not Path(place).is_file():
            raise UsageError(place, "is no file that a browser could open", "Open the store's site")
        webbrowser.open(address or Path(place).resolve().as_uri())
