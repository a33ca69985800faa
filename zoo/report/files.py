"""Reports on disk and in stores; each file is written whole or not at all."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic import ValidationError as MalformedRecord

from menagerie import uses
from menagerie.durable import disk_errors, make_folders, write_durably
from menagerie.format.bundle_manifest import BundleManifest, Role
from zoo.errors import ArtifactError, HashMismatch, NotInStore, TooLarge
from zoo.records import ConversionReport, FailureReport, ProgramGraphs
from zoo.report.page import render_failure, render_index, render_report

if TYPE_CHECKING:
    from zoo.store import Release, Store

FAILURE_PAGE = "failure.html"

_FILES: dict[type, str] = {  # by a recipe's head; other heads take a recording
    uses.LabelsHead: "picture.png",
    uses.TextHead: "line.png",
    uses.BoxesHead: "photo.jpg --picture boxes.png",
    uses.SimilarityHead: '"a sentence" "another"',
    uses.VoicesHead: "one.wav two.wav",
    uses.BordersHead: "film.mp4",
}
_NO_FILE = re.compile(r"\W+")  # characters to replace in a file's name
_GRAPHS = "graphs.json"
_GRAPHS_FORM = TypeAdapter(tuple[ProgramGraphs, ...])
_MOST_REPORT_BYTES = 64 * 2**20


def run_arguments(folder: Path, manifest: BundleManifest) -> str:
    """Return example arguments of `zoo run MODEL`: files for its recipe, or arrays."""
    if Role.SPEECH in manifest.files:
        from menagerie.speech.recipe import read_recipe

        programs = [program.name for program in manifest.programs]
        heads = read_recipe(folder / manifest.files[Role.SPEECH].path, programs).heads
        return _FILES.get(type(next(iter(heads.values()))), "recording.wav")
    first = manifest.programs[0]
    words = []
    for tensor in first.inputs:
        words += ["--input", f"{tensor.name}={_NO_FILE.sub('_', tensor.name)}.npy"]
    words += ["--output", f"y.{'npz' if first.outputs[1:] else 'npy'}"]
    words += ["--program", first.name] * (first.name != "main")
    return shlex.join(words)


def _write(folder: Path, name: str, content: str) -> Path:
    with disk_errors(folder, len(content)):
        make_folders(folder)
        write_durably(folder / name, content.encode(), partial=folder / f".{name}.partial")
    return folder / name


def write_report(
    report: ConversionReport, folder: Path, *, graphs: Sequence[ProgramGraphs] = ()
) -> Path:
    """Write report.json, graphs.json if there are graphs, and report.html; return its path.

    Create a missing folder, and remove the page of an earlier failure. Raise StoreFull if no space
    is left, StoreError if the folder cannot be written.
    """
    with disk_errors(folder):
        (folder / FAILURE_PAGE).unlink(missing_ok=True)
    _write(folder, "report.json", report.model_dump_json(indent=1) + "\n")
    if graphs:
        _write(folder, _GRAPHS, _GRAPHS_FORM.dump_json(tuple(graphs)).decode())
    else:
        (folder / _GRAPHS).unlink(missing_ok=True)
    return _write(folder, "report.html", render_report(report, graphs))


def write_failure(report: FailureReport, folder: Path) -> Path:
    """Write failure.html and return its path; the report of an earlier conversion stays.

    Raise StoreFull if no space is left, StoreError if the folder cannot be written.
    """
    return _write(folder, FAILURE_PAGE, render_failure(report))


def read_report(folder: Path) -> ConversionReport:
    """Read a folder's report.json; raise ArtifactError if it is missing or malformed."""
    path = folder / "report.json"
    try:
        return ConversionReport.model_validate_json(path.read_bytes())
    except OSError as error:
        fact = f"cannot be read ({(error.strerror or 'unknown reason').lower()})"
        raise ArtifactError(str(path), fact, "Convert or pull the model again") from error
    except MalformedRecord as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        fact = f"is not a conversion report ({where}: {first['msg']})"
        raise ArtifactError(str(path), fact, "Convert or pull the model again") from error


def read_graphs(folder: Path) -> tuple[ProgramGraphs, ...]:
    """Read the graphs.json beside a report; empty if it is missing or damaged."""
    try:
        return _GRAPHS_FORM.validate_json((folder / _GRAPHS).read_bytes())
    except (OSError, MalformedRecord):
        return ()


def write_index(reports: Mapping[Path, ConversionReport], folder: Path) -> Path:
    """Write index.html, a table of conversions in the order of `reports`, and return its path.

    `reports` has the folders into which `write_report` wrote them. Raise StoreFull if no space is
    left, StoreError if the folder cannot be written.
    """
    pages = ((report, (place / "report.html").absolute()) for place, report in reports.items())
    # Quoting escapes colons, so no folder's name can pass for a URL scheme.
    rows = [(report, quote(os.path.relpath(page, folder.absolute()))) for report, page in pages]
    return _write(folder, "index.html", render_index(rows))


def report_of(store: Store, release: Release) -> ConversionReport | None:
    """Return the report of a release's conversion; None if it has no readable one."""
    entry = release.manifest.listed.get("report.json")
    if entry is None:
        return None
    with suppress(NotInStore, TooLarge, HashMismatch, MalformedRecord):
        return ConversionReport.model_validate_json(store.read_file(entry, _MOST_REPORT_BYTES))
    return None
