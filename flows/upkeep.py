"""The flows that maintain a store: verify, confirm on a device, rebuild, collect garbage."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from prefect import State
from prefect.states import Failed
from pydantic import Field

from flows.conversion import ModelChoice, TargetChoice
from flows.pages import leave_artifact
from flows.parameters import ConversionOptions, allowed_store
from flows.proofs import (
    VerifyResult,
    prove_all,
    published,
    rebuild,
    rebuild_markdown,
    turn_of_the_day,
    unconfirmed,
    verification_markdown,
)
from flows.services import services
from flows.this_run import failed, first_of, our_flow, tag_run
from flows.work import Collected, collect, new_work_folder
from tasks.retries import patiently, run_as_task
from tasks.verify import Proof, Rebuild, confirm_release, verify_release
from zoo.errors import MenagerieError
from zoo.store import KeepRule, Release, open_store


@our_flow(lambda asked: f"verify {first_of(asked['models']) or 'all releases'}")
def verify_releases(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[TargetChoice] = [],  # noqa: B006
    *,
    every_build: bool = False,
    threads: Annotated[int, Field(ge=1, le=256)] = 1,
    store: str = "",
) -> VerifyResult | State[VerifyResult]:
    """Pull releases, run their golden cases in a fresh process, and say which still hold.

    Nothing is removed: the verdict is noted beside the release, and the run's state is failed if
    one does not hold. What is for another kind of machine is named and passed over.

    Args:
        models: Only these models. Empty: all that are published.
        targets: Only these targets. Empty: all.
        every_build: All releases of each model and target, and not only the latest.
        threads: Number of threads to run with.
        store: A folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    tag_run([*models, *targets])
    opened = open_store(allowed_store(store))
    releases = patiently(lambda: published(opened, models, targets, every_build=every_build))
    work = partial(verify_release, opened.url, threads=threads, judge=services().judge)
    return _proven("verify-releases", "Verification", opened.url, releases, work)


@our_flow(lambda asked: f"confirm {first_of(asked['models']) or 'what was emulated'}")
def confirm_releases(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[TargetChoice] = [],  # noqa: B006
    *,
    store: str = "",
) -> VerifyResult | State[VerifyResult]:
    """Run on this machine's device what was only emulated; what holds becomes *validated*.

    The store says what waits for a device, releases and candidates. On a machine without the device
    they are only proven again by emulation, and stay as they are. The run's state is failed if one
    does not hold.

    Args:
        models: Only these models. Empty: all that wait.
        targets: Only these targets. Empty: all.
        store: A folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    tag_run([*models, *targets])
    opened = open_store(allowed_store(store), allow_unsigned=True)
    releases = patiently(lambda: unconfirmed(opened, models, targets))
    work = partial(confirm_release, opened.url, judge=services().judge)
    return _proven("confirm-releases", "Confirmation", opened.url, releases, work)


def _proven(
    name: str, title: str, store: str, releases: list[Release], work: Callable[..., Proof]
) -> VerifyResult | State[VerifyResult]:
    """Prove each release in a task that calls `work` with it and a folder; leave a page."""
    verb = name.partition("-")[0]

    def prove(release: Release) -> Proof:
        folder = new_work_folder(f"{verb}-{release.model}-{release.target}")
        what = f"{release.model} for {release.target}"
        return run_as_task(verb, lambda: work(release, folder), retried=True, run_name=what)

    result = prove_all(store, releases, prove)
    page = partial(verification_markdown, result)
    leave_artifact(name, f"{title}: {result.summary}", page)
    return result if result.succeeded else failed(result.summary, result)


@our_flow(lambda asked: f"rebuild {first_of(asked['models']) or 'the release of the day'}")
def rebuild_release(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[TargetChoice] = [],  # noqa: B006
    *,
    store: str = "",
) -> Rebuild | State[Rebuild] | None:
    """Convert a published release again and compare its files and manifest, byte for byte.

    Nothing is published. The run's state is failed if a byte differs, or the build could not be
    made again. Of all that was made by the code that this worker has, another one every day.

    Args:
        models: Only these models. Empty: all that are published.
        targets: Only these targets. Empty: all.
        store: A folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    place = allowed_store(store)
    today = datetime.now(UTC).date().toordinal()
    release = turn_of_the_day(open_store(place), models, targets, today)
    if release is None:
        text = "Nothing that is published was made by the code of this worker.\n"
        leave_artifact("rebuild-release", "Nothing to rebuild", lambda: text)
        return None
    tag_run([release.model, release.target])
    found = rebuild(release, ConversionOptions(store=store), services().hold)
    summary = f"{found.model} for {found.target}: {found.outcome}"
    leave_artifact("rebuild-release", f"Rebuilt: {summary}", lambda: rebuild_markdown(found))
    if found.succeeded:
        return found
    return failed(f"{summary}, {found.detail}", found)


@our_flow(lambda asked: "list garbage" if asked["dry_run"] else "collect garbage")
def collect_garbage(
    keep: KeepRule = KeepRule(),  # noqa: B008 - frozen
    *,
    dry_run: bool = False,
    store: str = "",
) -> Collected | State[Collected]:
    """Remove superseded releases and files that no release names; others may publish meanwhile.

    Args:
        keep: What is kept in any case.
        dry_run: Only say what would be removed.
        store: A folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    tag_run([])
    try:
        collected = collect(allowed_store(store), keep, dry_run=dry_run)
    except MenagerieError as error:
        return Failed(message=str(error))
    removed = "".join(f"- `{key}`\n" for key in collected.swept.documents)
    page = f"{collected.summary}\n\n{removed}"
    leave_artifact("collect-garbage", collected.summary, lambda: page)
    return collected
