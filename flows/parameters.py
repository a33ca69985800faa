"""Options of a conversion, as a form of Prefect's UI shows them, and their permissions.

The models are Menagerie's own, a folder's, or a submission's: `sha256:` and the digest of files in
the run's store, so that no worker needs the folder of another machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from menagerie.figures import shown_address
from menagerie.paths import home
from zoo.base_models import Frozen
from zoo.errors import UsageError
from zoo.manifest import is_pattern, load_manifest
from zoo.processes import is_worker
from zoo.store import open_store
from zoo.store.submissions import (
    allowed_here,
    fetch_submission,
    submission_folder,
    submission_of,
    submit,
)

STORES_VARIABLE = "MENAGERIE_ALLOWED_STORES"

_USUAL = ("random_weights", "force", "store")  # the most common options
_NAME = re.compile(r"sha256:([0-9a-f]{64})")
FACTORIES_VARIABLE = "MENAGERIE_ALLOW_FACTORIES"
SUBMITTED_VARIABLE = "MENAGERIE_ALLOW_SUBMITTED"


def _for_forms(schema: dict[str, Any]) -> None:
    """Change the schema so that forms can leave optional fields empty, without a type *None*.

    The manifest is not a field: custom models are submitted, and named through the API. The form
    has two tabs, *Usual* with few fields and *All* with every field; they share their values.
    """
    for entry in schema["properties"].values():
        if {"type": "null"} in entry.get("anyOf", ()):
            [only] = [each for each in entry.pop("anyOf") if each != {"type": "null"}]
            entry.update(only)
            entry.pop("default", None)
    schema["patternProperties"] = {"^manifest$": schema["properties"].pop("manifest")}
    whole = {
        name: schema.pop(name) for name in list(schema) if name not in {"title", "description"}
    }
    few = {name: whole["properties"][name] for name in _USUAL}
    tabs = {"Usual": whole | {"properties": few}, "All": whole}
    schema["anyOf"] = [{"title": title, **tab} for title, tab in tabs.items()]


Minutes = Annotated[int, Field(ge=1, le=24 * 60)]
MinutesOrNone = Annotated[int, Field(ge=0, le=24 * 60)]


class ConversionOptions(BaseModel):
    """How models are converted; the same for every model of a run.

    A form shows the fields in this order, at first only those that are set most often.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=_for_forms, use_attribute_docstrings=True
    )

    random_weights: int | None = Field(default=None, ge=0, lt=2**32, title="Random weights")
    """Seed of random weights to use instead of the published ones.
    Empty: download the published weights."""
    force: bool = Field(default=False, title="Convert again")
    """Convert and prove also what the store already holds unchanged.
    The store keeps its release."""
    store: str = Field(default="", title="Store")
    """A folder, file:// or s3://bucket/prefix. Empty: the worker's default store."""
    allow_factories: bool = Field(default=False, title="Allow factories")
    """Run the model-building code named by entries of kind factory."""
    threads: int = Field(default=1, ge=1, le=256, title="Threads")
    """Number of threads for measuring latency."""
    stage_minutes: Minutes = Field(default=60, title="Minutes per stage")
    """A stage that takes longer is stopped, and its model counts as timed out.
    Publishing is never stopped."""
    memory_gib: int | None = Field(default=None, ge=1, le=4096, title="Memory in GiB")
    """A conversion that needs more is stopped. Empty: most of the machine's memory."""
    search_minutes: MinutesOrNone = Field(default=10, title="Minutes to search for a cause")
    """Minutes to search for the first wrong node after a failed validation. 0: do not search."""
    manifest: str = Field(default="", title="Manifest")
    """Source of the models: sha256:… as printed by `zoo submit`, or a folder on the worker.
    Empty: Menagerie's own models."""

    @model_serializer(mode="wrap")
    def _asked_for(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return only changed options, because a form would unfold to show the others."""
        fields = type(self).model_fields
        return {k: value for k, value in whole(self).items() if value != fields[k].default}

    @property
    def store_url(self) -> str:
        """The address of the store: the option, or else the default."""
        return allowed_store(self.store)


class RunLimits(Frozen):
    """Time limits of a run."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    hours: int = Field(default=24, ge=1, le=24 * 14, title="Hours in total")
    """When they are over, unfinished models count as timed out and the run ends."""
    minutes_per_model: Minutes = Field(default=120, title="Minutes per model")
    """Minutes that a worker may take for one model before its run is cancelled."""
    minutes_without_worker: MinutesOrNone = Field(default=10, title="Minutes without a worker")
    """Minutes to wait for a worker in a work pool that has none."""
    minutes_without_server: Minutes = Field(default=10, title="Minutes without a server")
    """Minutes to tolerate an unresponsive Prefect server."""


def allowed_store(asked: str) -> str:
    """Return the store that a run asks for, if that is allowed; the default if `asked` is empty.

    A worker allows its own store and those that its operator lists, separated by commas, in
    `MENAGERIE_ALLOWED_STORES`: a form must not make a worker read or write arbitrary folders.
    Raise UsageError if the store is not allowed.
    """
    default = default_store()
    listed = {each.strip() for each in os.environ.get(STORES_VARIABLE, "").split(",")}
    if not asked or not is_worker() or asked in {default, *listed}:
        return asked or default
    fact = f"may not be used by runs on this worker ({STORES_VARIABLE})"
    raise UsageError(shown_address(asked), fact, "Leave it empty, or ask the operator")


def default_store() -> str:
    """Return `MENAGERIE_STORE`, or a folder under `menagerie.paths.home`."""
    return os.environ.get("MENAGERIE_STORE") or str(home() / "store")


def submission_name(digest: str) -> str:
    """Return the name of a submission in a run's options."""
    return f"sha256:{digest}"


def submission_digest(manifest: str) -> str | None:
    """Return the digest in the name of a submission; None for a folder."""
    found = _NAME.fullmatch(manifest)
    return None if found is None else found[1]


def manifest_folder(options: ConversionOptions) -> Path | None:
    """Return the folder of the manifest, fetched if it is a submission; None: Menagerie's own.

    Raise NotInStore if there is no such submission, HashMismatch if the store has other bytes.
    """
    digest = submission_digest(options.manifest)
    if digest is None:
        return Path(options.manifest) if options.manifest else None
    folder = submission_folder(digest)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = fetch_submission(open_store(options.store_url).objects, digest, folder)
    os.utime(found)  # folders in use are not swept
    return found


def with_submission(options: ConversionOptions, models: Sequence[str]) -> ConversionOptions:
    """Return the options with the newest submission of these models, unless a manifest is named.

    If Menagerie's own manifest has all of them, it is used; patterns only select among its models.
    """
    if options.manifest or not models or any(map(is_pattern, models)):
        return options
    if set(models) <= load_manifest().models.keys():
        return options
    digest = submission_of(open_store(options.store_url).objects, models)
    name = "" if digest is None else submission_name(digest)
    return options.model_copy(update={"manifest": name})


def submit_folder(options: ConversionOptions) -> ConversionOptions:
    """Submit the options' manifest folder for workers, which only run code with a known digest."""
    if not options.manifest or submission_digest(options.manifest):
        return options
    folder = Path(options.manifest)
    models = tuple(load_manifest(folder).models)
    made = submit(open_store(options.store_url).objects, folder, models)
    return options.model_copy(update={"manifest": submission_name(made.digest)})


def allow_here(manifest: str) -> None:
    """Allow the code of a submission to run on workers of this home from now on."""
    if submission_digest(manifest) and not factories_allowed(manifest, asked=False):
        with allowed_here().open("a") as file:
            file.write(f"{manifest}\n")


def factories_allowed(manifest: str, *, asked: bool) -> bool:
    """Return whether a run may call builders named by manifest entries, which is foreign code.

    Besides the run's parameters (`asked`), the machine's operator must permit it with
    `MENAGERIE_ALLOW_FACTORIES=1` in the environment: users who may fill in a form may not
    necessarily run code there. `zoo convert --allow-factories` sets it for its own process.

    The code of a submission runs without `asked` if the operator listed its digest: in
    `MENAGERIE_ALLOW_SUBMITTED`, separated by commas or `*` for all, or in the file
    `allowed-submissions` of the worker's home, which takes effect at once.
    """
    digest = submission_digest(manifest)
    listed = {each.strip() for each in os.environ.get(SUBMITTED_VARIABLE, "").split(",")}
    with suppress(FileNotFoundError):
        listed.update(allowed_here().read_text().split())
    if digest is not None and listed & {digest, f"sha256:{digest}", "*"}:
        return True
    allowed = os.environ.get(FACTORIES_VARIABLE) == "1"
    if asked and not allowed:
        from prefect.logging import get_run_logger

        get_run_logger().warning(
            "Factories are off on this machine. Its operator may set %s=1", FACTORIES_VARIABLE
        )
    return asked and allowed
