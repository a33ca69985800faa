"""The manifest: every model of the zoo, read from a folder with one YAML file per family."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, ValidationError

from zoo.base_models import Frozen, Name
from zoo.errors import ManifestError, UsageError, advice
from zoo.precision import Precision
from zoo.spec import ModelSpec
from zoo.yaml_source import Fault, YamlFile, explain, read_yaml

DEFAULT_TAG = "default"
VERSION = 1
OUR_MODELS = Path(__file__).parent / "models"
_GLOB = frozenset("*?[")


class ManifestFile(Frozen):
    """One YAML file: a family of models."""

    version: Literal[1] = Field(description="of the manifest's format")
    family: str = Field(description="what these models have in common, as a heading")
    models: dict[Name, ModelSpec] = Field(min_length=1, description="entries by model name")


@dataclass(frozen=True)
class Origin:
    """The location of an entry; `line` counts from 1."""

    file: Path
    line: int


@dataclass(frozen=True)
class Manifest:
    """All entries by name, ordered by file name and line."""

    models: Mapping[str, ModelSpec]
    origins: Mapping[str, Origin]
    _folder: Path | None = None  # None: Menagerie's own models
    _variants: frozenset[str] = frozenset()  # made from entries' `precisions`

    @property
    def listing(self) -> str:
        """The command that lists the manifest's models."""
        place = "" if self._folder is None else f" --manifest {shlex.quote(str(self._folder))}"
        return f"zoo list{place}"

    def spec(self, name: str) -> ModelSpec:
        """Return the entry called `name`; raise UsageError, with a suggestion, if it is unknown."""
        self._require(name)
        return self.models[name]

    def select(
        self,
        patterns: Sequence[str],
        tags: Sequence[str] = (),
        precisions: Sequence[Precision] = (),
    ) -> list[str]:
        """Return the names that match any pattern or have any tag, in the manifest's order.

        Patterns are names, or globs with `*`, `?`, `[...]`; a glob matches no other precisions.
        Without patterns and tags, the tag is `default`. With `precisions`, models are selected in
        these, if they are published (`unpublished`). Raise UsageError if a pattern, a tag or the
        precisions select nothing.
        """
        tags = tags if patterns or tags else (DEFAULT_TAG,)
        chosen: set[str] = set()
        for pattern in patterns:
            chosen |= self._matching(pattern)
        for tag in tags:
            chosen |= self._tagged(tag)
        if precisions:
            made = {p: {self._in(name, p) for name in chosen} - {None} for p in precisions}
            named = [name for name in patterns if not is_pattern(name)]
            absent = next((precision for precision in made if not made[precision]), None)
            if absent and not (named and any(made.values())):
                fact = f"none of the selected models is published in {absent}"
                step = f"Add `precisions: {{{absent}: {{}}}}` to an entry"
                raise UsageError(f"--precision {absent}", fact, step)
            chosen = {name for names in made.values() for name in names if name}
        return [name for name in self.models if name in chosen]

    def unpublished(
        self, patterns: Sequence[str], precisions: Sequence[Precision]
    ) -> list[tuple[str, str, UsageError]]:
        """Return the names among `patterns` that lack a precision: entry, release and reason."""
        step = "Add `precisions: {{{}: {{}}}}` to the entry, or leave it out"
        return [
            (
                name,
                _variant_name(name, precision),
                UsageError(
                    f"--precision {precision}",
                    f"not published in {precision}: {name}",
                    step.format(precision),
                ),
            )
            for precision in precisions
            for name in patterns
            if not is_pattern(name) and self._in(name, precision) is None
        ]

    def _in(self, name: str, precision: Precision) -> str | None:
        """Return a model's name in a precision; None if it is not published in that precision."""
        if self.models[name].precision is precision:
            return name
        return next(iter({_variant_name(name, precision)} & self._variants), None)

    def _matching(self, pattern: str) -> set[str]:
        if not is_pattern(pattern):
            self._require(pattern)
            return {pattern}
        found = {name for name in self.models if fnmatchcase(name, pattern)} - self._variants
        if not found:
            raise UsageError(pattern, "no model's name matches", f"`{self.listing}` shows them all")
        return found

    def _tagged(self, tag: str) -> set[str]:
        found = {name for name, spec in self.models.items() if tag in spec.tags}
        if not found:
            known = sorted({t for spec in self.models.values() for t in spec.tags})
            step = advice(tag, known, "Name models, or '*' for all of them")
            raise UsageError(f"tag {tag}", "no model has this tag", step)
        return found

    def _require(self, name: str) -> None:
        if name not in self.models:
            step = advice(name, self.models, f"`{self.listing}` shows them all")
            raise UsageError(name, "there is no such model", step)


def is_pattern(name: str) -> bool:
    """Return whether a name is a glob, such as `vit*`."""
    return not _GLOB.isdisjoint(name)


def load_manifest(folder: Path | None = None, *, targets: Iterable[str] = ()) -> Manifest:
    """Read every `*.yaml` of a folder, by default of Menagerie's own models.

    Entries may name only `targets`, or any target if these are omitted. Raise UsageError if the
    folder does not exist or holds no YAML file, ManifestError with every fault of every file, one
    line each.
    """
    given, folder = folder, OUR_MODELS if folder is None else folder
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        fact = "holds no *.yaml file" if folder.is_dir() else "there is no such folder"
        raise UsageError(str(folder), fact, "A manifest is a folder with a YAML file a family")
    models: dict[str, ModelSpec] = {}
    variants: set[str] = set()
    origins: dict[str, Origin] = {}
    faults: list[str] = []
    for path in paths:
        file = read_yaml(path)
        for entry, written in _entries(file, targets).items():
            here = Origin(path, file.line(("models", entry)))
            others = {_variant_name(entry, p): spec for p, spec in written.variants().items()}
            for name, spec in {entry: written, **others}.items():
                if name in origins:
                    first = f"{_shown(origins[name].file)}:{origins[name].line}"
                    which = "this name" if name == entry else f"the name {name}"
                    fact = f"{which} is taken, by {first}"
                    file.faults.append(Fault(here.line, ("models", entry), fact))
                    continue
                models[name], origins[name] = spec, here
            variants |= others.keys()
        ordered = sorted(file.faults, key=lambda fault: fault.line)
        faults += [f"{_shown(path)}:{each.line}: {each}" for each in ordered]
    if faults:
        raise ManifestError(_shown(folder), tuple(faults))
    read = MappingProxyType(models), MappingProxyType(origins)
    return Manifest(*read, given, frozenset(variants))


def _variant_name(model: str, precision: Precision) -> str:
    return f"{model}_{precision.suffix}"


@cache  # it takes as long as reading ten small manifests
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest file, for editors."""
    schema = ManifestFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _entries(file: YamlFile, targets: Iterable[str]) -> Mapping[str, ModelSpec]:
    value = file.value
    known = {fault.location for fault in file.faults}  # these read as None: report them once
    if value is None:
        return {}
    if isinstance(value, dict) and value.get("version", VERSION) != VERSION:
        fact = f"{value['version']!r} is not supported; this Menagerie reads version {VERSION}"
        file.faults.append(Fault(file.line(("version",)), ("version",), fact))
        return {}
    try:
        # Strict JSON validation turns lists into tuples and text into enums, but never '1' into 1.
        read = ManifestFile.model_validate_json(
            json.dumps(value), strict=True, context={"targets": tuple(targets)}
        )
    except ValidationError as error:
        for location, fact in explain(error, json_schema()):
            if location not in known:
                file.faults.append(Fault(file.line(location), location, fact))
        return {}
    return read.models


def _shown(path: Path) -> str:
    """Return `path` as a user in the current folder would type it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
