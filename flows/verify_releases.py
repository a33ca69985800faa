"""The flow that proves again what is published: nightly, on whatever machine its worker is."""

import json
from datetime import UTC, datetime
from typing import Annotated

from prefect import State, flow, tags
from prefect.logging import get_run_logger
from prefect.states import Failed
from pydantic import BaseModel, ConfigDict, Field

from flows.artifacts import leave_artifact
from flows.choices import ModelChoice
from flows.parameters import default_store
from flows.settings import NOTHING_KEPT
from flows.work import new_work_folder
from flows.workplace import workplace
from tasks.failures import explain
from tasks.verify import Proof, ProofOutcome, runs_here, verify, verify_release
from zoo.errors import MenagerieError
from zoo.home import home
from zoo.spec import Target
from zoo.store import Release, Store, open_store

__all__ = ["VerifyResult", "verify_releases"]


class VerifyResult(BaseModel):
    """All releases that were looked at, a proof each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    proofs: tuple[Proof, ...]
    store: str
    when: str  # ISO 8601, UTC

    @property
    def succeeded(self) -> bool:
        """Whether nothing that could be tried here failed."""
        fine = (ProofOutcome.PROVEN, ProofOutcome.ELSEWHERE)
        return all(proof.outcome in fine for proof in self.proofs)

    @property
    def summary(self) -> str:
        """One line, e.g. `12 proven, 1 refuted`."""
        counts = {o: sum(p.outcome is o for p in self.proofs) for o in ProofOutcome}
        return ", ".join(f"{n} {o}" for o, n in counts.items() if n) or "nothing is published"


@flow(name="verify-releases", **NOTHING_KEPT)
def verify_releases(
    models: list[ModelChoice] = [],  # noqa: B006 - Prefect reads the defaults for its form
    targets: list[Target] = [],  # noqa: B006
    *,
    every_build: bool = False,
    threads: Annotated[int, Field(ge=1, le=256)] = 1,
    store: str = "",
) -> VerifyResult | State[VerifyResult]:
    """Pull releases, run their golden cases in a fresh process, and say which still hold.

    Nothing is removed: the verdict is noted beside the release, and the run's state is failed if
    one does not hold. What is for another kind of machine is named and passed over.

    Args:
        models: Only these. None: all that is published.
        targets: Only for these. None: all.
        every_build: Not only the latest release of each model and target, but all of them.
        threads: Threads to run with.
        store: Folder, file:// or s3://bucket/prefix. Empty: the worker's default store.
    """
    place = store or default_store()
    opened = open_store(place)
    proofs = [
        _proof(place, release, threads) if runs_here(release.manifest) else _elsewhere(release)
        for release in _chosen(opened, models, targets, every_build=every_build)
    ]
    result = VerifyResult(
        proofs=tuple(proofs), store=place, when=datetime.now(UTC).isoformat(timespec="seconds")
    )
    leave_artifact("verify-releases", f"Verification: {result.summary}", lambda: _markdown(result))
    _keep(result)
    if not result.succeeded:
        return Failed(message=result.summary, data=result)
    return result


def _chosen(
    store: Store, models: list[str], targets: list[Target], *, every_build: bool
) -> list[Release]:
    releases = [
        release
        for release in store.releases()
        if (not models or release.model in models) and (not targets or release.target in targets)
    ]
    if every_build:
        return releases
    pairs = dict.fromkeys((release.model, release.target) for release in releases)
    return [store.find(model, target) for model, target in pairs]


def _proof(store: str, release: Release, threads: int) -> Proof:
    """Whatever happens, there is a proof, or the lack of one."""
    judge = workplace().judge
    folder = new_work_folder(f"verify-{release.model}-{release.target}")
    try:
        with tags(release.model, release.target):
            return verify(
                lambda: verify_release(store, release, folder, threads=threads, judge=judge)
            )
    except Exception as error:  # noqa: BLE001 - the others are to be verified all the same
        get_run_logger().warning("%s for %s", release.model, release.target, exc_info=True)
        ours = error if isinstance(error, MenagerieError) else explain(error, release.model)
        return _empty(release, ProofOutcome.UNREACHABLE, str(ours))


def _elsewhere(release: Release) -> Proof:
    requires = release.manifest.requires
    return _empty(release, ProofOutcome.ELSEWHERE, f"for {requires.system} {requires.machine}")


def _empty(release: Release, outcome: ProofOutcome, detail: str) -> Proof:
    return Proof(
        model=release.model,
        target=release.target,
        build_key=release.build_key,
        outcome=outcome,
        state=release.manifest.state,
        detail=detail,
    )


def _markdown(result: VerifyResult) -> str:
    rows = ["| model | target | build | verdict | latency | why |", "|---|---|---|---|---:|---|"]
    for p in result.proofs:
        latency = "" if p.latency_ms is None else f"{p.latency_ms:.2f} ms"
        why = p.detail.replace("|", "\\|").replace("\n", " ")
        cells = (p.model, p.target, p.build_key[:12], p.outcome, latency, why)
        rows.append(f"| {' | '.join(cells)} |")
    return f"{result.summary}, {result.when}\n\n" + "\n".join(rows) + "\n"


def _keep(result: VerifyResult) -> None:
    """The last verification as files, for those who have no server to look at."""
    folder = home() / "reports"
    folder.mkdir(exist_ok=True)
    text = json.dumps(result.model_dump(mode="json"), indent=1)
    (folder / "verification.json").write_text(text)
    (folder / "verification.md").write_text(_markdown(result))
