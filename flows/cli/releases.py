"""Commands on a store's releases: list, compare, provenance, proofs, and removal."""

import os
import re
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    BuildOption,
    FactoriesOption,
    ManifestOption,
    ModelArgument,
    PlatformOption,
    StoreOption,
    TargetOption,
    TargetsOption,
    ThreadsOption,
    UnsignedOption,
    absolute,
)
from flows.cli.output import answer, figure, messages, table, transfer
from menagerie.figures import milliseconds, moment, size
from zoo.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasks.verify import Proof
    from zoo.catalogue.pages import Site
    from zoo.report.comparison import Side
    from zoo.store import Release, Store

_BUILT = Path(__file__).parents[2] / "dist"  # the output of `make wheel`
_Wheels = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Small package for readers, to keep there. Default: dist/ (catalog: if --address).",
    ),
]
_COLOURS = {"better": "green", "worse": "red"}
_Which = typer.Argument(
    metavar="MODEL[@WHICH]|DIR|ZIP",
    help="WHICH: latest, a number in the order of promotion from 1, or the build key's beginning.",
)


def list_releases(model: ModelArgument, *, store: StoreOption = "") -> None:
    """Show the signed history of a model's releases, and what waits for its promotion.

    **Examples**

    - `zoo release list resnet18`
    - `zoo release list resnet18 --json | jq .latest`
    """
    from flows.cli.promotion import refuse_slip
    from menagerie.typed_json import plain
    from zoo.store import open_store

    opened = open_store(store)
    opened.objects.require()
    ledgers, waiting = opened.ledgers(model), opened.candidates(model)
    if not ledgers and not waiting:
        refuse_slip(opened, model)
    value = {
        "ledgers": [plain(ledger) for ledger in ledgers],
        "latest": {
            ledger.platform: None if ledger.latest is None else ledger.latest.build_key
            for ledger in ledgers
        },
        "candidates": [[c.platform, c.build_key, c.manifest.created] for c in waiting],
    }
    shown = table("platform", "when", "decision", "build", "state", "reason")
    for ledger in ledgers:
        for entry in ledger.entries:
            build = entry.build_key[:12] + (" (latest)" if entry is ledger.latest else "")
            decision = (entry.action, build, entry.state.value, entry.reason)
            shown.add_row(ledger.platform, moment(entry.when), *decision)
    for candidate in waiting:
        build, made = candidate.build_key[:12], candidate.manifest
        shown.add_row(made.platform, moment(made.created), "candidate", build, made.state.value, "")
    answer(value, shown)


def diff(
    before: Annotated[str, _Which],
    after: Annotated[str | None, typer.Argument(metavar="[WHICH]", help="Default: latest.")] = None,
    *,
    target: TargetOption = "cpu",
    everything: Annotated[bool, typer.Option("--all", help="Show unchanged values too.")] = False,
    store: StoreOption = "",
) -> None:
    """Compare two releases: numerics, latency, size, graph, passes, kernels and provenance.

    Given one model alone, its latest release is compared with the one before it.

    **Examples**

    - `zoo release diff resnet18`
    - `zoo release diff resnet18@1 resnet18@latest --target metal`
    - `zoo release diff resnet18 out/`
    """
    from zoo.report.comparison import compare

    name = before.partition("@")[0]
    if after is None:
        if Path(before).exists():
            raise UsageError(
                before, "lacks a second release", f"Run `zoo release diff {before} MODEL`"
            )
        after = name
        before = before if "@" in before else f"{name}@before"
    compared = compare(_side(before, target, store), _side(after, target, store))
    found = [each for each in compared if everything or each.change != "same"]
    shown = table("", "what", before, after, "")
    section = ""
    for each in found:
        new, section = each.section != section, each.section
        colour = _COLOURS.get(each.change)
        row = (section if new else "", each.what, each.before, each.after)
        shown.add_row(*row, each.change if colour else "", style=colour)
    answer([vars(each) for each in found], shown if found else "no difference")


def _side(which: str, target: str, store: str) -> "Side":
    from menagerie.cli import bundle_at, model_name
    from menagerie.format.folder import open_bundle
    from zoo.report.comparison import Side
    from zoo.report.files import read_report, report_of
    from zoo.store import open_store

    if Path(which).exists():
        with bundle_at(which, target, lambda: open_store(store)) as folder:
            bundle = open_bundle(folder)
            return Side(bundle.manifest, read_report(bundle.folder))
    text, _, rank = which.partition("@")
    model, opened = model_name(text), open_store(store)
    if rank in {"", "latest"}:
        release = opened.find(model, target)
    else:
        release = opened.find_any(model, target, _build(opened, model, target, rank))
    return Side(release.manifest, report_of(opened, release))


def _build(store: "Store", model: str, target: str, rank: str) -> str:
    """Return the build key for `before`, a number or the prefix of a key."""
    from flows.cli.promotion import build_keys, ledger_here, whole_key

    ledger = ledger_here(store, model, target)
    keys = build_keys(ledger)
    if rank == "before":
        latest = ledger.latest
        earlier = keys if latest is None else keys[: keys.index(latest.build_key)]
        if not earlier:
            fact = f"has no release for {ledger.platform} before its latest"
            raise UsageError(model, fact, "Name two to compare: zoo release diff MODEL@1 MODEL@2")
        return earlier[-1]
    if re.fullmatch(r"[1-9][0-9]{0,5}", rank):
        if int(rank) > len(keys):
            fact = f"has {len(keys)} releases for {ledger.platform}, not {rank}"
            raise UsageError(model, fact, f"See: zoo release list {model}")
        return keys[int(rank) - 1]
    waiting = (release.build_key for release in store.candidates(model, target))
    return whole_key(model, {*keys, *waiting}, rank)


def provenance(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    build: BuildOption = None,
    store: StoreOption = "",
) -> None:
    """Check and show where a release comes from: source, versions, passes, builder, digests.

    It is an in-toto statement with the SLSA provenance predicate, signed by the promoter. What was
    linked is read from the release's bill of materials.

    **Examples**

    - `zoo release provenance resnet18`
    - `zoo release provenance resnet18 --target metal --json`
    """
    from menagerie.format.bundle_manifest import Role
    from transforms.sbom import linked
    from zoo.signing.provenance import read_provenance
    from zoo.store import open_store

    opened = open_store(store)
    release = opened.find(model, target, build)
    found = read_provenance(opened, release)
    bill = release.manifest.files.get(Role.SBOM)
    definition = found["predicate"]["buildDefinition"]
    shown = table("what", "value")
    for name, value in definition["externalParameters"].items():
        shown.add_row(name, str(value))
    for each in definition["resolvedDependencies"]:
        value = each.get("version") or each.get("uri") or str(each.get("digest", {}).get("sha256"))
        shown.add_row(each["name"], value)
    shown.add_row("builder", found["predicate"]["runDetails"]["builder"]["id"])
    for each in found["subject"]:
        shown.add_row(each["name"], each["digest"]["sha256"])
    for part in () if bill is None else linked(opened.read_file(bill)):
        shown.add_row(f"linked: {part.name}", f"{part.version} {part.licence}, {part.how}".strip())
    answer(found, shown, "signed by a trusted key, and over these very files")


def rebuild(
    model: ModelArgument,
    *,
    target: TargetOption = "cpu",
    build: BuildOption = None,
    platform: PlatformOption = None,
    manifest: ManifestOption = None,
    allow_factories: FactoriesOption = False,
    store: StoreOption = "",
) -> None:
    """Convert a release again and compare it with what is published, byte for byte.

    All files and the manifest are compared, but for the report, which speaks of its own run, and
    the dates. Nothing is published. It takes the code, versions and compiler that the release was
    made with; see `zoo release provenance`.

    **Examples**

    - `zoo release rebuild resnet18`
    - `zoo release rebuild resnet18 --target metal --json`
    """
    from flows import proofs
    from flows.parameters import ConversionOptions, with_submission
    from flows.services import services
    from tasks.verify import RebuildOutcome
    from zoo.store import open_store

    if allow_factories:  # the caller operates this machine
        os.environ["MENAGERIE_ALLOW_FACTORIES"] = "1"
    release = open_store(store).find(model, target, build, platform=platform)
    options = ConversionOptions(
        store=store, manifest=absolute(manifest), allow_factories=allow_factories
    )
    options = with_submission(options, [model])
    with messages().status(f"converting {model} for {release.platform} again"):
        found = proofs.rebuild(release, options, services().hold)
    shown: list[RenderableType] = [f"{found.outcome}: {found.detail}"]
    if found.outcome is RebuildOutcome.IDENTICAL:
        files = f"{found.files} files, {size(found.bytes)}"
        shown = [f"identical: {files}, but for the report and the dates"]
    elif found.differences:
        rows = [(each.place, each.fact) for each in found.differences]
        shown = [table("file", "difference", rows=rows), found.outcome.value]
    answer(found.model_dump(mode="json"), *shown, succeeded=found.succeeded)


def verify(
    *,
    target: TargetsOption = None,
    threads: ThreadsOption = 1,
    allow_unsigned: UnsignedOption = False,  # noqa: ARG001 - its callback acts
    store: StoreOption = "",
) -> None:
    """Prove the latest release of every model and target on this machine.

    **Examples**

    - `zoo release verify`
    - `zoo release verify --target cpu --store s3://models/zoo`
    """
    from flows.proofs import prove_all, published
    from flows.work import new_work_folder
    from tasks.verify import verify_release
    from zoo.store import open_store

    def prove(release: "Release") -> "Proof":
        messages().print(f"{release.model} for {release.target}")
        folder = new_work_folder(f"verify-{release.model}-{release.target}")
        return verify_release(store, release, folder, threads=threads)

    result = prove_all(store, published(open_store(store), (), target or ()), prove)
    shown = table("model", "target", "verdict", "latency", "why", right=("latency",))
    for proof in result.proofs:
        latency = figure(proof.latency_ms, milliseconds)
        shown.add_row(proof.model, proof.target, proof.outcome.value, latency, proof.detail)
    dump = result.model_dump(mode="json")
    answer(dump, shown, result.summary, succeeded=result.succeeded)


def catalog(
    *,
    model: Annotated[
        list[str] | None, typer.Option(help="Draw only its page and the list; once for each.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where a web server shows the store: the pages' commands name it. Kept; '': none.",
        ),
    ] = None,
    wheel: _Wheels = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    store: StoreOption = "",
) -> None:
    """Draw the site of all promoted releases again, in the store beside them.

    Each promotion does it for its own model. The pages are static: they work from a folder and
    from any server, and link the very files of the store. Of a bucket without a web server a copy
    is made whose links anybody may follow for a week.

    **Examples**

    - `zoo release catalog --open`
    - `zoo release catalog --address https://models.example/zoo`
    - `zoo release catalog --store s3://models/zoo`
    """
    from zoo.catalogue.site import INDEX, share_catalogue, update_catalogue
    from zoo.store import open_store

    opened = open_store(store)
    opened.objects.require()
    site = _site(opened, address, wheel or [])
    with messages().status("drawing the catalogue"):
        models = update_catalogue(opened, model if address is None and not wheel else None)
        shared = None if site.address else share_catalogue(opened)
    if opened.url.startswith("s3://"):
        place = shared or f"{site.address}/{INDEX}"
    else:
        place = str(Path(opened.url.removeprefix("file://")) / INDEX)
    answer({"models": models, "index": place}, place)
    if shared:
        messages().print("Anyone with this address can read all pages and files, for a week.")
    if open_it:
        webbrowser.open(place if "://" in place else Path(place).resolve().as_uri())


def _site(store: "Store", address: str | None, wheels: list[Path]) -> "Site":
    from zoo.catalogue.site import keep_site, kept_site

    kept = kept_site(store.objects)
    if address is None and not wheels:
        return kept
    if odd := [w for w in wheels if not (w.name.startswith("menagerie-") and w.suffix == ".whl")]:
        raise UsageError(str(odd[0]), "is not a wheel of the small package", "Run: make wheel")
    site = kept if address is None else kept.at(address)
    given = wheels or ([] if site.wheels else sorted(_BUILT.glob("menagerie-*.whl")))
    site = keep_site(store.objects, site, given)
    if not site.wheels:
        step = "make wheel, then zoo release catalog --wheel dist/menagerie-*.whl"
        messages().print(f"The pages cannot say where the runtime is: {step}")
    return site


def gc(
    *,
    keep: Annotated[
        int,
        typer.Option("--keep", min=1, max=1000, help="Releases to keep of each model and target."),
    ] = 3,
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0.0, max=36500.0, help="Younger releases stay, too.")
    ] = 0.0,
    candidate_days: Annotated[
        float,
        typer.Option("--candidate-days", min=0.0, max=36500.0, help="Younger candidates stay."),
    ] = 30.0,
    grace_hours: Annotated[
        float, typer.Option("--grace-hours", min=0.0, max=8760.0, help="Whatever is younger stays.")
    ] = 24.0,
    really: Annotated[
        bool, typer.Option("--delete", help="Remove it; else it is only listed.")
    ] = False,
    store: StoreOption = "",
) -> None:
    """Say what no release needs any more, or remove it with `--delete`.

    The latest release of every model and target stays, as its ledger has it, and so does every file
    that a release names; others may publish meanwhile. A candidate that is not promoted goes
    when it is older than `--candidate-days` and `--keep-days`.

    **Examples**

    - `zoo release gc`
    - `zoo release gc --keep 1 --delete`
    - `zoo release gc --keep 2 --keep-days 90 --delete`
    """
    from flows.work import collect
    from zoo.store import KeepRule, open_store

    open_store(store).objects.require()
    rule = KeepRule(
        releases=keep, days=keep_days, candidate_days=candidate_days, grace_hours=grace_hours
    )
    with messages().status("looking through the store"):
        collected = collect(store, rule, dry_run=not really)
    advice = () if really else ("Nothing was removed: `zoo release gc --delete` does it",)
    shown = (*collected.swept.documents, collected.summary, *advice)
    answer(collected.model_dump(mode="json"), *shown)


def push(
    repository: Annotated[str, typer.Argument(metavar="hf://ORG/NAME")],
    model: Annotated[str, typer.Argument(help="The model in the store. Default: NAME.")] = "",
    *,
    endpoint: Annotated[
        str, typer.Option(metavar="URL", help="The Hub. Default: $HF_ENDPOINT, huggingface.co.")
    ] = "",
    private: Annotated[
        bool, typer.Option("--private", help="Make a new repository private.")
    ] = False,
    wheel: _Wheels = None,
    store: StoreOption = "",
) -> None:
    """Copy a model's latest releases to a repository of the Hugging Face Hub, with a model card.

    Log in first: `hf auth login`, or set HF_TOKEN. What the repository held before is in its
    history. `menagerie pull hf://ORG/NAME` reads it, and checks the same signatures.

    **Examples**

    - `zoo release push hf://example/resnet18`
    - `zoo release push hf://example/small-resnet resnet18 --private --json`
    """
    from menagerie.typed_json import plain
    from zoo.hub import push as push_to_hub
    from zoo.store import open_store

    opened = open_store(store)
    opened.objects.require()
    with transfer(repository) as bar:
        pushed = push_to_hub(
            opened,
            repository,
            model,
            server=endpoint,
            private=private,
            wheels=wheel or sorted(_BUILT.glob("menagerie-*.whl")),
            progress=bar,
        )
    for line in pushed.lacking:
        messages().print(f"The card lacks {line}", style="yellow")
    answer(plain(pushed), f"{pushed.address}: {', '.join(pushed.platforms)}")
