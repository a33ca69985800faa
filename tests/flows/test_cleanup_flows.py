"""Verifying what is published, confirming what was emulated, and collecting garbage."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from toy_zoo import toy_bundle, toy_job, toy_judgement, toy_records

import tasks.retries
import zoo.store
from flows.services import Services, use_services
from flows.upkeep import collect_garbage, confirm_releases, verify_releases
from flows.work import collect, new_work_folder
from menagerie.format.bundle_manifest import ReleaseState
from menagerie.store.layout import verdict_key
from tasks.prove import prove
from tasks.publish import publish_bundle
from tasks.verify import ProofOutcome, verify_release
from zoo.errors import StoreUnreachable
from zoo.records import GraphNode, GraphRecord, NodeKind, ProgramGraphs
from zoo.report.files import read_report
from zoo.store import KeepRule, ReleaseVerdict, open_store

if TYPE_CHECKING:
    from prefect import State

    from flows.proofs import VerifyResult
    from zoo.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of this test's."""
    return open_store(str(tmp_path / "store"))


def publish(tmp_path: Path, model: str, key: str = "a" * 64, **judgement: Any) -> None:
    """A release of `model` with a report."""
    job = toy_job(
        tmp_path / (model + key[:4]), model=model, build_key=key, store=str(tmp_path / "store")
    )
    toy_bundle(job)
    judged = replace(toy_judgement(), **judgement)
    records = toy_records()
    drawn = records.transformed.model_copy(update={"graphs": (toy_graphs(),)})
    records = records.model_copy(update={"transformed": drawn})
    prove(job, records, judge=lambda *_, **__: judged)
    publish_bundle(job)


def toy_graphs() -> ProgramGraphs:
    """One node, before and after the passes."""
    node = GraphNode(name="a_node_of_the_picture", operator="relu", kind=NodeKind.ACTIVATION)
    graph = GraphRecord(nodes=(node,))
    return ProgramGraphs(program="main", before=graph, after=graph)


def judging(**judgement: Any) -> Services:
    """Services whose every proof ends so."""
    judged = replace(toy_judgement(passed=judgement.pop("passed", True)), **judgement)
    return Services(judge=lambda *_, **__: judged)


def verified(place: Services, store: Store, **arguments: Any) -> VerifyResult:
    """The result of a run, whose state must say whether it succeeded."""
    with use_services(place):
        return _result(verify_releases(store=store.url, **arguments, return_state=True))


def confirmed(place: Services, store: Store) -> VerifyResult:
    """The result of a confirmation, whose state must say whether it succeeded."""
    with use_services(place):
        return _result(confirm_releases(store=store.url, return_state=True))


def _result(state: State[VerifyResult]) -> VerifyResult:
    outcome = state.result(raise_on_failure=False)
    result: VerifyResult = getattr(outcome, "result", outcome)
    assert state.is_completed() == result.succeeded
    return result


@pytest.mark.usefixtures("prefect_server")
def test_what_holds_is_proven(store: Store, tmp_path: Path, own_home: Path) -> None:
    """The latest of each is run; the verdict is noted beside it; nothing stays behind."""
    publish(tmp_path, "ant")
    publish(tmp_path, "bee")
    result = verified(judging(), store)
    assert [(p.model, p.outcome) for p in result.proofs] == [
        ("ant", ProofOutcome.PROVEN),
        ("bee", ProofOutcome.PROVEN),
    ]
    assert result.proofs[0].latency_ms == 2.0
    verdict = store.verdict(store.find("ant", "cpu"))
    assert verdict is not None
    assert verdict.passed
    assert list((own_home / "work").iterdir()) == []
    assert [p.model for p in verified(judging(), store, models=["bee"]).proofs] == ["bee"]


@pytest.mark.usefixtures("prefect_server")
def test_what_does_not_hold_is_reported_and_stays(
    store: Store, tmp_path: Path, own_home: Path
) -> None:
    """Refuted, damaged, elsewhere: a row each; nothing is removed from the store, nothing left."""
    publish(tmp_path, "ant")
    [refuted] = verified(judging(passed=False), store).proofs
    assert (refuted.outcome, refuted.detail) == (
        ProofOutcome.REFUTED,
        "diverged: y of case 0 is off by 0.5",
    )
    release = store.find("ant", "cpu")
    verdict = store.verdict(release)
    assert verdict is not None
    assert (verdict.passed, verdict.detail) == (False, refuted.detail)
    digest = release.manifest.weights.sha256
    [blob] = (tmp_path / "store" / "blobs").rglob(digest)
    blob.chmod(0o644)
    blob.write_bytes(b"THE WEIGHTS")
    [damaged] = verified(judging(), store).proofs
    assert damaged.outcome is ProofOutcome.DAMAGED
    assert store.releases() == [release]
    assert list((own_home / "work").iterdir()) == []


@pytest.mark.usefixtures("prefect_server")
def test_a_reader_proves_all_the_same(store: Store, tmp_path: Path) -> None:
    """A verdict that the store does not take changes nothing about the proof, and is reported."""
    publish(tmp_path, "ant")
    (tmp_path / "store" / verdict_key("ant", "cpu", "a" * 64)).mkdir(parents=True)
    [proof] = verified(judging(), store).proofs
    assert proof.outcome is ProofOutcome.PROVEN
    assert "not noted in the store" in proof.detail
    [proof] = verified(judging(passed=False), store).proofs
    assert proof.outcome is ProofOutcome.REFUTED
    assert "y of case 0 is off by 0.5; not noted in the store" in proof.detail


@pytest.mark.usefixtures("prefect_server")
def test_a_device_validates_what_was_emulated(store: Store, tmp_path: Path) -> None:
    """The release's state and report change; a second confirmation has nothing to do."""
    publish(tmp_path, "ant", emulated=True)
    assert store.find("ant", "cpu").manifest.state is ReleaseState.EMULATED
    [proof] = confirmed(judging(machine="a device"), store).proofs
    assert (proof.outcome, proof.state) == (ProofOutcome.PROVEN, ReleaseState.VALIDATED)
    release = store.find("ant", "cpu")
    assert release.manifest.state is ReleaseState.VALIDATED
    bundle = store.pull(release, tmp_path / "out")
    assert "a_node_of_the_picture" in (bundle / "report.html").read_text()
    report = read_report(bundle)
    assert (report.validation.machine, report.validation.emulated) == ("a device", False)
    assert confirmed(judging(passed=False), store).proofs == ()


@pytest.mark.usefixtures("prefect_server")
def test_an_emulation_confirms_nothing(store: Store, tmp_path: Path) -> None:
    """A worker without the device leaves the release as it is, and says that one is waited for."""
    publish(tmp_path, "ant", emulated=True)
    [proof] = confirmed(judging(emulated=True), store).proofs
    assert "this worker has no device of cpu" in proof.detail
    assert store.find("ant", "cpu").manifest.state is ReleaseState.EMULATED


@pytest.mark.usefixtures("prefect_server")
def test_the_store_says_what_waits_for_a_device(store: Store, tmp_path: Path) -> None:
    """Releases and candidates; not what was validated or refuted."""
    for model, emulated in (("ant", True), ("bee", False), ("cat", True)):
        publish(tmp_path, model, emulated=emulated)
    refuted = store.find("cat", "cpu")
    said = {"model": "cat", "target": "cpu", "build_key": refuted.build_key, "when": "today"}
    store.note(ReleaseVerdict(passed=False, detail="off by 0.5", **said))
    job = toy_job(tmp_path / "dog", model="dog", build_key="d" * 64, store=store.url)
    toy_bundle(job)
    judged = replace(toy_judgement(), emulated=True)
    prove(job, toy_records(), judge=lambda *_, **__: judged)
    store.propose(job.bundle)
    found = confirmed(judging(machine="a device"), store)
    assert {proof.model: proof.state for proof in found.proofs} == dict.fromkeys(
        ("ant", "dog"), ReleaseState.VALIDATED
    )
    assert confirmed(judging(), store).proofs == ()


@pytest.mark.usefixtures("prefect_server")
def test_a_store_that_is_away_says_nothing_of_a_release(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has failed, and the next one finds the release as it was."""
    publish(tmp_path, "ant", emulated=True)
    monkeypatch.setattr(tasks.retries, "RETRY_SECONDS", [0.0])

    def away(*_: object) -> None:
        raise StoreUnreachable(store.url, "no answer")

    monkeypatch.setattr(zoo.store.Store, "pull", away)
    [proof] = confirmed(judging(), store).proofs
    assert proof.outcome is ProofOutcome.UNREACHABLE
    assert "no answer" in proof.detail
    assert store.verdict(store.find("ant", "cpu")) is None


@pytest.mark.usefixtures("prefect_server")
def test_a_device_that_disagrees_changes_nothing(store: Store, tmp_path: Path) -> None:
    """The release stays emulated, the run fails, and the verdict is noted."""
    publish(tmp_path, "ant", emulated=True)
    [proof] = confirmed(judging(passed=False), store).proofs
    assert (proof.outcome, "off by 0.5" in proof.detail) == (ProofOutcome.REFUTED, True)
    assert store.find("ant", "cpu").manifest.state is ReleaseState.EMULATED


@pytest.mark.usefixtures("prefect_server")
def test_garbage_is_collected_by_the_flow(store: Store, tmp_path: Path) -> None:
    """The newest stays; a store that cannot be swept is a failed run with the reason."""
    publish(tmp_path, "ant", "a" * 64)
    publish(tmp_path, "ant", "b" * 64)
    rule = KeepRule(releases=1, grace_hours=0)
    collected = collect_garbage(rule, store=store.url)
    assert len(collected.swept.releases) == 1
    assert len(store.releases()) == 1
    (tmp_path / "store" / "releases" / "ant" / "cpu" / f"{'c' * 64}.json").write_text("{]")
    state = collect_garbage(rule, store=store.url, return_state=True)
    assert state.is_failed()
    assert "nothing was swept" in (state.message or "")


def test_an_interrupted_pull_leaves_nothing(
    store: Store, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it gathers is in the working folder, by whose name a killed proof's is known too."""
    publish(tmp_path, "ant")
    folder = new_work_folder("verify-ant-cpu")
    seen: list[str] = []

    def interrupted(*_: object) -> None:
        seen.extend(path.name for path in (own_home / "work").iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr("menagerie.store.pull.fetch_blob", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify_release(store.url, store.find("ant", "cpu"), folder)
    assert set(seen) == {folder.name}  # files are pulled side by side
    assert list((own_home / "work").iterdir()) == []


def test_our_own_folder_is_swept(store: Store, own_home: Path) -> None:
    """Old logs and compiled headers, and work of processes that are no more, go."""
    dead = f"{new_work_folder('toy').relative_to(own_home)}/x"
    dead = dead.replace(f".{os.getpid()}.", ".999999999.")
    headers = ("headers/unused/prelude.h", "headers/used/prelude.h")
    for name in ("logs/old.log", "logs/new.log", dead, *headers):
        (own_home / name).parent.mkdir(parents=True, exist_ok=True)
        (own_home / name).write_text("12345")
    for name in ("logs/old.log", "headers/unused", headers[1]):
        os.utime(own_home / name, (0, 0))
    rule = KeepRule()
    found = collect(store.url, rule, dry_run=True)
    assert (found.local_files, found.local_bytes) == (3, 15)
    assert "would remove" in found.summary
    assert (own_home / "logs" / "old.log").exists()
    assert collect(store.url, rule, dry_run=False).local_files == 3
    left = {p.relative_to(own_home).as_posix() for p in own_home.rglob("*") if p.is_file()}
    assert left == {"logs/new.log", "headers/used/prelude.h"}


def test_links_and_folders_in_place_of_logs_stay(
    store: Store, own_home: Path, tmp_path: Path
) -> None:
    """They are not Menagerie's: they are neither removed nor counted, however old."""
    kept = tmp_path / "elsewhere" / "kept"
    for path in (kept, own_home / "logs" / "x.log" / "kept"):
        path.parent.mkdir(parents=True)
        path.write_text("12345")
        os.utime(path.parent, (0, 0))
    links = [own_home / "fetched" / "link", own_home / "logs" / "link.log"]
    for link, aim in zip(links, (kept.parent, kept), strict=True):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(aim)
        os.utime(link, (0, 0), follow_symlinks=False)
    assert collect(store.url, KeepRule(), dry_run=False).local_files == 0
    assert all(link.is_symlink() for link in links)
    assert kept.exists()
    assert (own_home / "logs" / "x.log" / "kept").exists()


def test_what_vanishes_while_we_sweep(
    store: Store, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that another process removes between two looks costs nothing."""
    (own_home / "logs").mkdir(parents=True)
    for name in ("gone.log", "old.log"):
        (own_home / "logs" / name).write_text("12345")
        os.utime(own_home / "logs" / name, (0, 0))
    look = Path.lstat

    def late(path: Path) -> os.stat_result:
        if path.name == "gone.log":
            path.unlink(missing_ok=True)
        return look(path)

    monkeypatch.setattr(Path, "lstat", late)
    found = collect(store.url, KeepRule(), dry_run=False)
    assert (found.local_files, found.local_bytes) == (1, 5)
