"""`zoo submit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import JsonOption, StoreOption, store_url
from flows.cli.output import emit, results
from flows.cli.transfer import transfer
from menagerie.figures import count, size

if TYPE_CHECKING:
    from zoo.spec import SourceSpec

__all__ = ["submit"]


def submit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of manifest files.")],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put models of one's own into the store, for workers that share no folder with this machine.

    The folder holds manifest files and what they name: weights, builders. It gets a digest as its
    name; `zoo convert` finds the newest submission that has the models it is asked for. Code in it
    runs only where the worker's operator lists the digest in MENAGERIE_ALLOW_SUBMITTED.

    **Examples**

    - `zoo submit my_models/`
    - `zoo convert my_net`
    - `zoo convert my_net --manifest sha256:3f2a…`
    """
    from flows.parameters import submission_name
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest
    from zoo.store import open_store

    manifest = load_manifest(folder, targets=all_targets())
    opened = open_store(store_url(store))
    with transfer(str(folder)) as progress:
        made = opened.submit(folder, tuple(manifest.models), progress)
    name = submission_name(made.digest)
    if as_json:
        emit({"manifest": name, "models": list(made.models), "bytes": made.size})
        return
    results().print(f"{name}: {count(len(made.files), 'file')}, {size(made.size)}", markup=False)
    results().print(f"Convert with `zoo convert {' '.join(made.models)}`", markup=False)
    foreign = [name for name, spec in manifest.models.items() if _is_foreign(spec.source)]
    if foreign:
        line = f"Their builders ({', '.join(foreign)}) run where MENAGERIE_ALLOW_SUBMITTED has it"
        results().print(line, markup=False)


def _is_foreign(source: "SourceSpec") -> bool:
    """Whether code of the folder's own builds the model."""
    from zoo.spec_sources import is_ours

    builder = getattr(source, "builder", "")
    return ":" in builder and not is_ours(builder)
