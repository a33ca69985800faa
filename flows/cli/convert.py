"""`zoo convert`."""

import importlib
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    FactoriesOption,
    ManifestOption,
    SeedOption,
    TargetsOption,
    ThreadsOption,
    absolute,
    complete_models,
    store_option,
    use_cluster,
)
from zoo.errors import MenagerieError, UsageError
from zoo.precision import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.connection import ClusterState
    from flows.parameters import ConversionOptions
    from flows.plan import PlannedModel
    from flows.results import ModelResult


def convert(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Names or globs such as `resnet*`. Left out: those with the tag `default`.",
            autocompletion=complete_models,
        ),
    ] = None,
    *,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Models with this tag.")] = None,
    target: TargetsOption = None,
    precision: Annotated[
        list[Precision] | None,
        typer.Option(
            "--precision",
            help="One of the entry's precisions; once for each. Default: the entry as named.",
        ),
    ] = None,
    random_weights: SeedOption = None,
    allow_factories: FactoriesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Convert and prove again what the store already has.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=64, help="Models to convert at a time.")
    ] = 1,
    threads: ThreadsOption = 1,
    stage_minutes: Annotated[
        int,
        typer.Option(min=1, max=24 * 60, help="Longest time of a stage; the model fails after it."),
    ] = 60,
    search_minutes: Annotated[
        int,
        typer.Option(min=0, max=24 * 60, help="Longest search for the cause of a failed proof."),
    ] = 10,
    memory_gib: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Most memory of each model. Default: most of the machine's."
        ),
    ] = None,
    store: Annotated[str, store_option()] = "",
    manifest: ManifestOption = None,
    local: Annotated[
        bool, typer.Option("--local", help="Convert in this process, even if a server runs.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Submit the runs to the server, and return at once.")
    ] = False,
) -> None:
    """Convert models, prove them and publish them to the store.

    What the store already holds from the same code, weights and versions is skipped. With a server
    (`zoo cluster up`, or PREFECT_API_URL) its workers do the work, and the store is theirs;
    `--allow-factories` then submits the manifest's folder, whose digest their operator allows.

    **Examples**

    - `zoo convert`
    - `zoo convert resnet18 --random-weights 0`
    - `zoo convert resnet18 --target metal`
    - `zoo convert mobilenet_v2 --precision float16 --precision int8-weight-only`
    - `zoo convert 'vit*' --no-wait`
    - `zoo convert 'mobilenet*' --jobs 2 --store s3://models/zoo`
    """
    from flows.cli.output import answer, remark
    from flows.cli.progress import announce_weights, shown_results
    from flows.parameters import ConversionOptions, allow_here, submit_folder, with_submission
    from flows.plan import plan, sort_out
    from flows.reports import index_page, table_of
    from flows.results import Listener

    if allow_factories:  # the caller operates this machine, not the workers
        os.environ["MENAGERIE_ALLOW_FACTORIES"] = "1"
    if local:
        os.environ.pop("PREFECT_API_URL", None)
    cluster = None if local else use_cluster(lambda found: found.environment())
    if no_wait and not os.environ.get("PREFECT_API_URL"):
        raise UsageError(
            "--no-wait", "needs a server", "Run `zoo cluster up`, and leave out --local"
        )
    given = ConversionOptions(
        random_weights=random_weights,
        allow_factories=allow_factories,
        force=force,
        threads=threads,
        stage_minutes=stage_minutes,
        search_minutes=search_minutes,
        memory_gib=memory_gib,
        store=_reachable_store(store, cluster),
        manifest=absolute(manifest),
    )
    options = with_submission(given, models or [])
    if allow_factories and os.environ.get("PREFECT_API_URL"):
        options = submit_folder(options)
        if cluster is not None:  # its worker shares this home
            allow_here(options.manifest)
    if options.manifest != given.manifest:
        remark(f"From what was submitted as {options.manifest}")
    began = time.perf_counter()
    planned = plan(
        models or [], target or ["cpu"], options, tags=tag or [], precisions=precision or []
    )
    announce_weights(planned, random_weights)
    settled = Listener()
    work = sort_out(planned, settled.model_ended)
    if no_wait:
        runs, kept = _submitted(work, options), settled.rows.values()
        answer(
            {"submitted": runs, "results": [row.model_dump(mode="json") for row in kept]},
            *(f"submitted {run['name']}  {run['address']}" for run in runs),
            *(f"{row.model} for {row.target}: {row.ended}  {row.remark}" for row in kept),
            succeeded=all(row.succeeded for row in kept),
        )
        return
    rows = settled.rows | (_run_flow(work, options, jobs) if work else {})
    in_order = [rows[one.model, one.target] for one in planned]
    result = table_of(in_order, options.store_url, index_page(), began)
    dump = result.model_dump(mode="json")
    answer(dump, *shown_results(result), succeeded=result.succeeded)


def _reachable_store(given: str, cluster: "ClusterState | None") -> str:
    """Return the store; raise UsageError if workers cannot reach it or lack its keys."""
    from flows.parameters import default_store

    if not given and os.environ.get("PREFECT_API_URL") and not os.environ.get("MENAGERIE_STORE"):
        fact = "is required: workers of PREFECT_API_URL cannot read a folder of this machine"
        raise UsageError("--store", fact, "Give theirs, or set MENAGERIE_STORE; or add --local")
    store = absolute(given) or default_store()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3")
    if cluster is not None and store.startswith("s3://") and endpoint != cluster.s3_endpoint:
        fact = "the worker of `zoo cluster up` has keys only to its own store"
        advice = "Add --local, or unset MENAGERIE_STORE and AWS_ENDPOINT_URL_S3"
        raise UsageError(store, fact, advice)
    return store


def _submitted(
    work: "Sequence[PlannedModel]", options: "ConversionOptions"
) -> list[dict[str, str]]:
    from flows.prefect_api import prefect_api

    with prefect_api():
        from prefect.client.orchestration import get_client

        from flows.batches import submit_all
        from flows.runs import Runs, address

        with get_client(sync_client=True) as client:
            batches = submit_all(Runs(client, None), work, options)
        return [
            {"name": batch.name, "run": str(batch.run.id), "address": address(batch.run.id)}
            for batch in batches
            if batch.run is not None
        ]


def _run_flow(
    work: "Sequence[PlannedModel]", options: "ConversionOptions", jobs: int
) -> "dict[tuple[str, str], ModelResult]":
    """Convert planned models in one run of the real flow; return rows by model and target.

    Raise MenagerieError if Prefect's API is not available.
    """
    from flows.cli.progress import LiveDisplay
    from flows.prefect_api import prefect_api
    from flows.results import Outcome, Step
    from tasks.forking import load_ahead
    from zoo.errors import explain
    from zoo.store import open_store
    from zoo.store.coordination import announce

    embedded = not os.environ.get("PREFECT_API_URL")
    if embedded:  # refuse a read-only store before starting a server
        with announce(open_store(options.store_url).objects, ()):
            pass

    def load() -> None:
        if embedded:
            load_ahead(work[0].spec.source.kind)
        importlib.import_module("flows.convert")

    with LiveDisplay() as display, prefect_api(display.status, load):
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        from flows.convert import convert_zoo
        from flows.services import Services, use_services

        display.status("starting the run")
        given = Services(listener=display, planned=work)
        # Embedded runs are not watched, and stopping the heartbeat thread takes up to a second.
        unwatched = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None} if embedded else {}
        error = MenagerieError("Prefect", "the run left no row of it", "Its logs say why")
        try:  # its error only counts for models without a row
            with use_services(given), temporary_settings(unwatched):
                convert_zoo(
                    models=list(dict.fromkeys(one.model for one in work)),
                    targets=list(dict.fromkeys(one.target for one in work)),
                    options=options,
                    jobs=jobs,
                )
        except Exception as raised:  # noqa: BLE001 - Prefect's API can fail in any way
            error = explain(raised, "Prefect")
        for one in work:
            if (one.model, one.target) not in display.rows:
                display.model_ended(one.row(Outcome.CRASHED, Step.FLOW, error))
    return display.rows
