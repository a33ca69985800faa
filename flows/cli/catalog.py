"""`zoo catalog`."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, store_url
from flows.cli.output import emit, messages, results
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.catalogue import Site
    from zoo.store import Store

__all__ = ["catalog"]

_BUILT = Path(__file__).parents[2] / "dist"  # where `make wheel` puts it


def catalog(
    *,
    model: Annotated[
        list[str] | None, typer.Option(help="Only its page and the list; once for each.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where a web server shows the store: the pages' commands name it. Kept; '': none.",
        ),
    ] = None,
    wheel: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="The small package for readers; kept. Default with --address: what is in dist/.",
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the site of all promoted releases anew, in the store beside them.

    Each promotion does it for its own model. The pages are static: they work from a folder and
    from any server, and link the very files of the store. Of a bucket without a web server a copy
    is made whose links anybody may follow for a week.

    **Examples**

    - `zoo catalog --open`
    - `zoo catalog --address https://models.example/zoo`
    - `zoo catalog --store s3://models/zoo`
    """
    from zoo.catalogue import INDEX, share_catalogue, update_catalogue
    from zoo.store import open_store

    opened = open_store(store_url(store))
    opened.objects.require()
    site = _site(opened, address, wheel or [])
    with messages().status("drawing the catalogue"):
        models = update_catalogue(opened, model if address is None and not wheel else None)
        shared = None if site.address else share_catalogue(opened)
    if opened.url.startswith("s3://"):
        place = shared or f"{site.address}/{INDEX}"
    else:
        place = str(Path(opened.url.removeprefix("file://")) / INDEX)
    if as_json:
        emit({"models": models, "index": place})
    else:
        results().print(place, markup=False)
    if shared:
        messages().print("Whoever has this address can read all pages and files, for a week.")
    if open_it:
        webbrowser.open(place if "://" in place else Path(place).resolve().as_uri())


def _site(store: "Store", address: str | None, wheels: list[Path]) -> "Site":
    """What is kept of the site, with what was given now."""
    from zoo.catalogue import keep_site, kept_site

    kept = kept_site(store.objects)
    if address is None and not wheels:
        return kept
    if odd := [w for w in wheels if not (w.name.startswith("menagerie-") and w.suffix == ".whl")]:
        raise UsageError(str(odd[0]), "is not a wheel of the small package", "Run: make wheel")
    site = kept if address is None else kept.at(address)
    given = wheels or ([] if site.wheels else sorted(_BUILT.glob("menagerie-*.whl")))
    site = keep_site(store.objects, site, given)
    if not site.wheels:
        fact = "The pages cannot say where the runtime is"
        messages().print(f"{fact}: make wheel, then zoo catalog --wheel dist/menagerie-*.whl")
    return site
