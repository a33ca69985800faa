"""The models of the manifest: `zoo list`, `show`, `new`, `submit`, `report`, and their schema."""

import json
import os
import re
import shlex
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    ManifestOption,
    ModelArgument,
    StoreOption,
    TargetOption,
    UnsignedOption,
    absolute,
    complete_models,
)
from flows.cli.output import AS_JSON, NARROW, answer, messages, results, table, transfer
from menagerie.figures import count, moment, printable, size
from menagerie.terminal import write_json
from zoo.errors import ArtifactError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from zoo.manifest import Origin
    from zoo.spec import ModelSpec
    from zoo.store import Release

_REPORT_FILES = ("report.json", "report.html")  # in the order of writing
_LISTED = ("summary", "dtype", "precision", "targets", "tags")  # fields of an entry


def list_models(
    *,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only models with this tag.")
    ] = None,
    manifest: ManifestOption = None,
) -> None:
    """List the models of the manifest.

    **Examples**

    - `zoo list`
    - `zoo list --tag speech`
    - `zoo list --json | jq '.[].name'`
    """
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest

    wanted = set(tag or ())
    models = {
        name: spec
        for name, spec in load_manifest(manifest, targets=all_targets()).models.items()
        if not wanted or wanted & set(spec.tags)
    }
    if wanted and not models:
        fact = f"no model has the tag {' or '.join(sorted(wanted))}"
        raise UsageError("zoo list", fact, "`zoo list` shows all models with their tags")
    found = [
        {
            "name": name,
            "source": spec.source.kind,
            "programs": [program.name for program in spec.programs],
            "licence": spec.licence.spdx,
            **{key: getattr(spec, key) for key in _LISTED},
        }
        for name, spec in models.items()
    ]
    rows = [
        (name, spec.source.kind, ", ".join(spec.targets), ", ".join(spec.tags), spec.summary)
        for name, spec in models.items()
    ]
    if results().width < NARROW:  # whole names, and summaries cut to the width
        room = max(1, results().width - max(map(len, models)) - 5)  # without column separators
        short = [
            (row[0], row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 1]}…") for row in rows
        ]
        shown = table("model", "summary", rows=short)
    else:
        shown = table("model", "source", "targets", "tags", "summary", rows=rows)
    answer(found, shown)


def show(model: ModelArgument, *, store: StoreOption = "", manifest: ManifestOption = None) -> None:
    """Show a model's manifest entry and its releases in the store.

    **Examples**

    - `zoo show resnet18`
    - `zoo show resnet18 --json`
    """
    from flows.parameters import ConversionOptions, manifest_folder, with_submission
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest
    from zoo.store import open_store

    given = ConversionOptions(store=store, manifest=absolute(manifest))
    folder = manifest_folder(with_submission(given, [model]))
    entries = load_manifest(folder, targets=all_targets())
    spec, origin = entries.spec(model), entries.origins[model]
    releases = open_store(store).history(model)
    value = {
        "name": model,
        "file": str(origin.file),
        "line": origin.line,
        "entry": spec.model_dump(mode="json"),
        "releases": [
            {
                "target": release.target,
                "build_key": release.build_key,
                "state": release.manifest.state.value,
                "retracted": retracted,
                "created": release.manifest.created,
                "random_weights": release.manifest.random_weights,
                "bytes": release.size,
            }
            for release, retracted in releases
        ],
    }
    answer(value, *_shown_entry(model, spec, origin), _shown_releases(model, releases))


def _shown_entry(model: str, spec: "ModelSpec", origin: "Origin") -> "Iterator[RenderableType]":
    from rich.text import Text

    yield Text(model, style="bold").append(f"  {printable(spec.summary)}", style="not bold")
    source = spec.source.model_dump(mode="json", exclude_defaults=True)
    yield "  source   " + ", ".join(f"{k} {v}" for k, v in source.items())
    for program in spec.programs:
        inputs = ", ".join(
            f"{i.name}: {i.dtype} {[*i.shape]}".replace("'", "") for i in program.inputs
        )
        yield f"  program  {program.name}({inputs})"
        for name, dimension in program.dimensions.items():
            yield f"           {name} from {dimension.low} to {dimension.high}"
    yield f"  targets  {', '.join(spec.targets)}"
    yield "  licence  " + " ".join(filter(None, spec.licence.model_dump().values()))
    yield f"  entry    {origin.file}:{origin.line}"


def _shown_releases(model: str, releases: "list[tuple[Release, bool | None]]") -> "RenderableType":
    if not releases:
        return f"  not in the store yet: zoo convert {model}"
    rows = []
    for release, retracted in releases:
        made, key = release.manifest, release.build_key[:12]
        seed, unsure = made.random_weights, f"{made.state}? its ledger is not trusted"
        state = {False: made.state.value, True: "retracted", None: unsure}[retracted]
        weights = "real" if seed is None else f"random, seed {seed}"
        rows.append((release.target, state, moment(made.created), weights, size(release.size), key))
    columns = ("target", "state", "created", "weights", "size", "build key")
    return table(*columns, rows=rows, right=("size",))


_MODULE = """\
import torch


def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
"""
_ENTRY = """\
version: 1
family: {name}
models:
  {name}:
    summary: Two layers
    # A function of {name}.py that returns the module with its weights.
    source: {{kind: factory, builder: "{name}:make"}}
    programs:
      - inputs: [{{name: input, shape: [batch, 8]}}]  # in forward's order; dtype: float32
        outputs: [logits]
        dimensions: {{batch: {{low: 1, high: 16}}}}
    targets: [cpu]  # or [cpu, metal]
    licence: {{spdx: Apache-2.0}}
"""


def new(
    name: Annotated[str, typer.Argument(help="The model's name, as `my_net`.")],
    *,
    manifest: Annotated[
        Path, typer.Option("--manifest", metavar="DIR", help="Folder for the two files.")
    ] = Path(),
) -> None:
    """Write a manifest and a module to begin with: NAME.yaml and NAME.py.

    They convert as they are: put your own network into the module, and its inputs into the entry.

    **Examples**

    - `zoo new my_net --manifest models`
    """
    from importlib.util import find_spec

    files = {manifest / f"{name}.py": _MODULE, manifest / f"{name}.yaml": _ENTRY.format(name=name)}
    if existing := [str(file) for file in files if file.exists()]:
        raise UsageError(existing[0], "already exists", "Choose another name, or edit the file")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or find_spec(name):
        fact = "is no name for a model and its Python module, or is an installed module's"
        raise UsageError(name, fact, "Choose another, as `my_net`")
    manifest.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        file.write_text(text)
    command = f"zoo convert {name} --manifest {shlex.quote(str(manifest))} --allow-factories"
    value = {"files": [str(file) for file in files], "next": command}
    answer(value, f"wrote {', '.join(value['files'])}", f"next: {command}")


def submit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of manifest files.")],
    *,
    allow: Annotated[
        bool, typer.Option("--allow", help="Let workers of this home run it.")
    ] = False,
    store: StoreOption = "",
) -> None:
    """Put custom models into the store, for workers that share no folder with this machine.

    The folder holds manifest files and what they name: weights, builders. It gets a digest as its
    name; `zoo convert` finds the newest submission that has the models it is asked for. Code in it
    runs only where the worker's operator allows the digest: by `--allow`, a line in the file
    `allowed-submissions` of the worker's home, or MENAGERIE_ALLOW_SUBMITTED.

    **Examples**

    - `zoo submit my_models/`
    - `zoo convert my_net`
    - `zoo convert my_net --manifest sha256:3f2a…`
    """
    from flows.parameters import allow_here, factories_allowed, submission_name
    from transforms.targets import all_targets
    from zoo.manifest import load_manifest
    from zoo.spec import is_ours
    from zoo.store import open_store, submissions

    manifest = load_manifest(folder, targets=all_targets())
    opened = open_store(store)
    with transfer(str(folder)) as progress:
        made = submissions.submit(opened.objects, folder, tuple(manifest.models), progress)
    name = submission_name(made.digest)
    if allow:
        allow_here(name)
    shown = [
        f"{name}: {count(len(made.files), 'file')}, {size(made.size)}",
        f"Convert with `zoo convert {' '.join(made.models)}`",
    ]
    builders = {n: getattr(spec.source, "builder", "") for n, spec in manifest.models.items()}
    if foreign := [n for n, built in builders.items() if ":" in built and not is_ours(built)]:
        allowed = "allow" if factories_allowed(name, asked=False) else "need `--allow` for"
        shown.append(f"Workers of this home {allowed} the code that builds {', '.join(foreign)}")
    answer({"manifest": name, "models": list(made.models), "bytes": made.size}, *shown)


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; left out: print it.")
    ] = None,
) -> None:
    """Write the JSON Schema of manifest files, so that an editor completes and checks them.

    An editor takes it by `# yaml-language-server: $schema=schema.json` on top of a YAML file.

    **Examples**

    - `zoo debug schema -o schema.json`
    """
    from zoo.manifest import json_schema

    if output is None:
        write_json(json_schema())
        return
    output.write_text(json.dumps(json_schema(), indent=2) + "\n")
    messages().print(f"wrote {output}")
    answer({"path": str(output.resolve())})


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
    store: StoreOption = "",
) -> None:
    """Say where the report page of a conversion is, or print the report as JSON.

    A model's last conversion here is looked at first, then its latest release in the store. One
    that failed before it was validated has a page too; the JSON is that of the last verdict.

    **Examples**

    - `zoo report resnet18 --open`
    - `zoo report out --json | jq .validation.verdict`
    """
    folder = _folder(what, target, store)
    page = _page(folder)
    document = _with_report(folder) / "report.json" if AS_JSON.get() else None
    answer(document and json.loads(document.read_text()), str(page))
    if open_it:
        webbrowser.open(page.resolve().as_uri())


def _page(folder: Path) -> Path:
    """Return a conversion's page: the failure page if the last conversion had no verdict."""
    from zoo.report.files import FAILURE_PAGE

    failure = folder / FAILURE_PAGE
    return failure if failure.is_file() else folder / "report.html"


def _folder(what: str, target: str, store: str) -> Path:
    from flows.reports import report_folder
    from menagerie.cli import model_name

    if Path(what).is_dir():
        return _with_report(Path(what))
    converted = report_folder(model_name(what), target)
    if _page(converted).is_file():
        return converted
    return _released(what, target, store)


def _with_report(folder: Path) -> Path:
    if all((folder / name).is_file() for name in _REPORT_FILES):
        return folder
    raise ArtifactError(str(folder), "has no report", "Name a bundle made by `zoo convert`")


def _released(model: str, target: str, store: str) -> Path:
    """Return the folder with a copy of the latest release's report, fetched if it is missing.

    It is kept apart from the reports of conversions on this machine, under the release's hash, so
    later releases and other stores have their own copies.
    """
    from flows.connection import write_private
    from menagerie.durable import disk_errors
    from menagerie.paths import home
    from zoo.store import open_store

    opened = open_store(store)
    release = opened.find(model, target)
    folder = home() / "fetched" / f"{model}-{target}-{release.digest[:16]}"
    if not (folder / "report.html").is_file():
        listed = release.manifest.listed
        found = {name: listed[name] for name in _REPORT_FILES if name in listed}
        contents = {n: opened.read_file(e, e.bytes).decode() for n, e in found.items()}
        with disk_errors(folder, sum(map(len, contents.values()))):
            for name, content in contents.items():
                write_private(folder / name, content)
    os.utime(_with_report(folder))  # files in use are not swept
    return folder
