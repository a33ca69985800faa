"""What a conversion can be asked for, as Prefect's UI shows it in a form, and who may ask for what.

The models are Menagerie's own, a folder's, or a submission's: named by digest, `sha256:` and 64
hexadecimal digits, that comes from the run's store, so that no worker needs a folder of others.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from menagerie.figures import shown_address
from menagerie.paths import home
from zoo.base_models import Frozen
from zoo.errors import UsageError
from zoo.manifest import is_pattern
from zoo.processes import is_worker
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from zoo.store import Store

STORES_VARIABLE = "MENAGERIE_ALLOWED_STORES"

_USUAL = ("random_weights", "force", "store")  # what is asked for most


def _for_forms(schema: dict[str, Any]) -> None:
    """What may be empty is a field that may be left empty, and not one of a type *None*.

    The manifest is no field: models of one's own are submitted, and named through the API.
    """
    for entry in schema["properties"].values():
        if {"type": "null"} in entry.get("anyOf", ()):
            [only] = [each for each in entry.pop("anyOf") if each != {"type": "null"}]
            entry.update(only)
            entry.pop("default", None)
    schema["patternProperties"] = {"^manifest$": schema["properties"].pop("manifest")}
    _fold(schema, _USUAL)


def _fold(schema: dict[str, Any], usual: tuple[str, ...]) -> None:
    """Two tabs in the form, *Usual* with these fields and *All* with every one.

    The values of either are values of the whole.
    """
    whole = {
        name: schema.pop(name) for name in list(schema) if name not in {"title", "description"}
    }
    few = {name: whole["properties"][name] for name in usual}
    tabs = {"Usual": whole | {"properties": few}, "All": whole}
    schema["anyOf"] = [{"title": title, **tab} for title, tab in tabs.items()]


class ConversionOptions(BaseModel):
    """How models are converted; the same for every model of a run.

    A form shows the fields in this order, at first only those that are asked for most.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_for_forms)

    random_weights: int | None = Field(
        default=None,
        ge=0,
        lt=2**32,
        title="Random weights",
        description="Seed of random weights in place of fetched ones. Empty: fetch the real ones.",
    )
    force: bool = Field(
        default=False,
        title="Convert again",
        description="Convert and prove even what the store already holds under the same build key. "
        "The store keeps the release that it has.",
    )
    store: str = Field(
        default="",
        title="Store",
        description="Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.",
    )
    allow_factories: bool = Field(
        default=False,
        title="Allow factories",
        description="Run the model-building code that entries of kind factory name.",
    )
    threads: int = Field(
        default=1, ge=1, le=256, title="Threads", description="Threads for measuring latencies."
    )
    stage_minutes: int = Field(
        default=60,
        ge=1,
        le=24 * 60,
        title="Minutes a stage",
        description="A stage that takes longer is ended, its model timed out; publishing is not.",
    )
    memory_gib: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        title="Memory in GiB",
        description="A conversion that takes more is ended. Empty: most of the machine's memory.",
    )
    search_minutes: int = Field(
        default=10,
        ge=0,
        le=24 * 60,
        title="Minutes for a search",
        description="How long the cause of a failed validation is looked for. 0: not at all.",
    )
    manifest: str = Field(
        default="",
        title="Manifest",
        description="Whose models: sha256:… of what `zoo submit` put into the store, or a folder "
        "that the worker sees. Empty: those that come with Menagerie.",
    )

    @model_serializer(mode="wrap")
    def _asked_for(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Only what differs from the defaults: a form would unfold itself to show the rest."""
        fields = type(self).model_fields
        return {k: value for k, value in whole(self).items() if value != fields[k].default}

    @property
    def store_url(self) -> str:
        """The store that is meant."""
        return allowed_store(self.store)


class RunLimits(Frozen):
    """How long a run waits for what before it goes on without it."""

    hours: int = Field(
        default=24,
        ge=1,
        le=24 * 14,
        title="Hours in all",
        description="After these, what is not done is given up and the table is written.",
    )
    minutes_per_model: int = Field(
        default=120,
        ge=1,
        le=24 * 60,
        title="Minutes a model",
        description="A run on a worker that takes longer is cancelled.",
    )
    minutes_without_worker: int = Field(
        default=10,
        ge=0,
        le=24 * 60,
        title="Minutes without a worker",
        description="How long to wait for a worker to appear in a pool that has none.",
    )
    minutes_without_server: int = Field(
        default=10,
        ge=1,
        le=24 * 60,
        title="Minutes without an answer",
        description="How long to bear with a Prefect server that does not answer.",
    )


def allowed_store(asked: str) -> str:
    """The store that a run means, if it may name it; empty: the default one.

    On a worker that is its own store, or one of those that its operator lists, with commas, in
    `MENAGERIE_ALLOWED_STORES`: who may fill in a form may not have a worker read or write folders.

    Raises:
        UsageError: it may not.
    """
    default = default_store()
    listed = {each.strip() for each in os.environ.get(STORES_VARIABLE, "").split(",")}
    if not asked or not is_worker() or asked in {default, *listed}:
        return asked or default
    fact = f"is no store that runs on this worker may name ({STORES_VARIABLE})"
    raise UsageError(shown_address(asked), fact, "Leave it empty, or ask the operator")


def default_store() -> str:
    """`MENAGERIE_STORE`, or a folder under `menagerie.paths.home`."""
    return os.environ.get("MENAGERIE_STORE") or str(home() / "store")


_NAME = re.compile(r"sha256:([0-9a-f]{64})")


def submission_name(digest: str) -> str:
    """What a run says to mean a submission."""
    return f"sha256:{digest}"


def submission_digest(manifest: str) -> str | None:
    """The digest in the name of a submission; None for a folder."""
    found = _NAME.fullmatch(manifest)
    return None if found is None else found[1]


def manifest_folder(options: ConversionOptions) -> Path | None:
    """The folder of the manifest that is meant, fetched where it is a submission; None: our own.

    Raises:
        NotInStore: there is no such submission.
        HashMismatch: the store has other bytes than those submitted.
    """
    digest = submission_digest(options.manifest)
    if digest is None:
        return Path(options.manifest) if options.manifest else None
    return fetched(open_store(options.store_url), digest)


def submission_meant(store: Store, models: Sequence[str], own: Collection[str]) -> str | None:
    """The digest of the newest submission that has these models; None where none is meant.

    Args:
        store: where submissions are.
        models: names, or patterns, which choose among Menagerie's own alone.
        own: the names of Menagerie's own models: where they have all, those are meant.
    """
    if not models or set(models) <= set(own) or any(map(is_pattern, models)):
        return None
    return store.submission_of(models)


def fetched(store: Store, digest: str) -> Path:
    """The folder of a submission, fetched where it is not here yet.

    Raises:
        NotInStore: there is no such submission.
        HashMismatch: the store has other bytes than those submitted.
    """
    folder = home() / "submissions" / digest
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = store.fetch_submission(digest, folder)
    os.utime(found)  # what is in use is not swept
    return found


FACTORIES_VARIABLE = "MENAGERIE_ALLOW_FACTORIES"
SUBMITTED_VARIABLE = "MENAGERIE_ALLOW_SUBMITTED"


def factories_allowed(manifest: str, *, asked: bool) -> bool:
    """Whether a run may call builders that manifest entries name, which is foreign code.

    Besides the run's parameters the operator of the machine must want it, by
    `MENAGERIE_ALLOW_FACTORIES=1` in the environment: whoever may fill in a form need not be one
    who may run code there. `zoo convert --allow-factories` sets it for its own process.

    The code of a submission runs without being asked for where the operator listed its digest in
    `MENAGERIE_ALLOW_SUBMITTED`, with commas between several; `*` there stands for all of them.

    Args:
        manifest: the run's, as in its options.
        asked: whether the run's parameters ask for it.
    """
    digest = submission_digest(manifest)
    listed = {each.strip() for each in os.environ.get(SUBMITTED_VARIABLE, "").split(",")}
    if digest is not None and listed & {digest, f"sha256:{digest}", "*"}:
        return True
    allowed = os.environ.get(FACTORIES_VARIABLE) == "1"
    if asked and not allowed:
        from prefect.logging import get_run_logger

        get_run_logger().warning(
            "Factories are off on this machine. Its operator may set %s=1", FACTORIES_VARIABLE
        )
    return asked and allowed
