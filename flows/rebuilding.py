"""Which release is made again, and what is said of it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flows.planning.job import job_for
from flows.planning.plan import plan
from flows.request.parameters import ConversionOptions
from menagerie.figures import size
from tasks.failures import explain
from tasks.rebuild import Rebuild, RebuildOutcome, rebuild_release
from zoo.errors import MenagerieError
from zoo.report import plain_text
from zoo.store import Release, Store, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.planning.plan import PlannedModel
    from tasks.stages import Hold

__all__ = ["rebuild", "rebuild_markdown", "turn_of_the_day"]

_log = logging.getLogger(__name__)

_OTHER = (
    "was made of another code, entry, weights, compiler or version than are at hand here: "
    "make it again with those that its provenance names"
)


def turn_of_the_day(
    store: Store, models: Sequence[str], targets: Sequence[str], day: int
) -> Release | None:
    """The release whose turn it is: of the latest of each model, those that can be made here.

    Args:
        store: where they are.
        models: only these; none: all.
        targets: only for these; none: all.
        day: a number that grows by one a day, so that each has its turn.

    Returns:
        A release of the code that is installed here; None where there is none.
    """
    places = dict.fromkeys(
        (each.model, each.target, each.platform)
        for each in store.releases()
        if (not models or each.model in models) and (not targets or each.target in targets)
    )
    latest = [store.find(model, target, platform=platform) for model, target, platform in places]
    for place in range(len(latest)):
        release = latest[(day + place) % len(latest)]
        try:
            if _planned(release, ConversionOptions(store=store.url)) is not None:
                return release
        except MenagerieError as error:  # no longer in the manifest
            _log.info("%s for %s: %s", release.model, release.target, error)
    return None


def rebuild(release: Release, options: ConversionOptions, hold: Hold) -> Rebuild:
    """Make a release again and compare; whatever happens, there is a verdict.

    Args:
        release: the build.
        options: its store and its manifest; the weights are the release's.
        hold: starts what holds the model.
    """
    try:
        planned = _planned(release, options)
        if planned is None:
            return _without(release, RebuildOutcome.OTHER, _OTHER)
        opened = open_store(options.store_url)
        return rebuild_release(opened, release, job_for(planned, options), hold)
    except Exception as error:  # noqa: BLE001 - somebody waits for a verdict
        _log.warning("%s for %s", release.model, release.target, exc_info=True)
        ours = error if isinstance(error, MenagerieError) else explain(error, release.model)
        return _without(release, RebuildOutcome.UNDECIDED, str(ours))


def rebuild_markdown(found: Rebuild) -> str:
    """What came of it, for a person."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    head = f"{found.model} for {found.target}, build {found.build_key[:12]}: {found.outcome}"
    lines = [f"{head}, {when}", "", f"{found.files} files, {size(found.bytes)}"]
    if found.differences:
        lines += ["", "| file | difference |", "|---|---|"]
        lines += [f"| {plain_text(d.place)} | {plain_text(d.fact)} |" for d in found.differences]
    elif found.detail:
        lines += ["", plain_text(found.detail)]
    return "\n".join(lines) + "\n"


def _planned(release: Release, options: ConversionOptions) -> PlannedModel | None:
    """The conversion that would give the very build key of the release, if there is one here."""
    given = options.model_copy(update={"random_weights": release.manifest.random_weights})
    known = {release.model: release.build_key}  # the store need not be asked
    for planned in plan([release.model], [release.target], given, known=known):
        if planned.error is not None:
            raise planned.error
        if planned.build_key == release.build_key:
            return planned
    return None


def _without(release: Release, outcome: RebuildOutcome, detail: str) -> Rebuild:
    return Rebuild(
        model=release.model,
        target=release.target,
        build_key=release.build_key,
        outcome=outcome,
        detail=detail,
    )
