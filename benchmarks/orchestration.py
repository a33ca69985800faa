"""What the orchestration itself costs, with stages that do nothing.

`python benchmarks/orchestration.py`: a simulated zoo of 10, 100 and 1,000 models for two targets is
converted by a real Prefect server and one worker, then again with nothing changed. Measured are the
seconds for each model and target, and the memory of server and parent. Writes a table,
beside what was measured before with other sizes.

`--sizes 10,100` takes fewer; of sizes beyond `--convert-up-to` releases are put into the store
beforehand, and what is measured is the run that finds them, and the one after it, when
nothing has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import psutil

TESTS = Path(__file__).resolve().parents[1] / "tests"
for _folder in ("faults", "servers"):
    sys.path.insert(0, str(TESTS / _folder))

from toy_cluster import ToyCluster  # noqa: E402

_MB = 10**6


class Kind(StrEnum):
    """The work of a run."""

    FIRST = "first"  # everything was converted
    FOUND = "found"  # everything was in the store
    UNCHANGED = "unchanged"  # repeated


@dataclass(frozen=True)
class Figures:
    """One run over `models` models for two targets."""

    models: int
    database: str  # of the Prefect server
    kind: Kind
    entries: int
    seconds: float  # of the whole command, including its start
    flow_seconds: float  # of the command's flow
    per_entry_ms: float  # of the flow
    parent_cpu_seconds: float
    server_cpu_seconds: float
    flow_runs: int
    server_mb: float
    parent_mb: float

    @property
    def name(self) -> tuple[str, str, int]:
        """The key of the measurement."""
        return self.database, self.kind, self.models


def main() -> None:
    """Measure every size, smallest first, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="10,100,1000")
    parser.add_argument("--output", type=Path, default=Path("build/orchestration"))
    parser.add_argument("--convert-up-to", type=int, default=1000)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    found = _earlier(asked.output)
    for size in map(int, asked.sizes.split(",")):
        with tempfile.TemporaryDirectory(prefix="orchestration-") as folder:
            cluster = ToyCluster(Path(folder) / "cluster")
            try:
                measured = _measure(cluster, size, convert=size <= asked.convert_up_to)
            finally:
                cluster.stop()
        known = {figures.name: figures for figures in (*found, *measured)}
        found = [known[name] for name in sorted(known)]
        print(_table(found), flush=True)
        _write(found, asked.output)


def _earlier(folder: Path) -> list[Figures]:
    """Return earlier measurements, if there are any."""
    file = folder / "orchestration.json"
    return [Figures(**each) for each in json.loads(file.read_text())] if file.exists() else []


def _measure(cluster: ToyCluster, size: int, *, convert: bool) -> list[Figures]:
    cluster.changes["MENAGERIE_TOYS"] = "instant"
    cluster.write_manifest(**{f"m{n:04}_metal": "fine" for n in range(size)})
    if not convert:
        _publish(cluster)
    cluster.start_server()
    cluster.apply()
    cluster.start_worker()
    kinds = (Kind.FIRST if convert else Kind.FOUND, Kind.UNCHANGED)
    return [_run(cluster, size, kind) for kind in kinds]


def _publish(cluster: ToyCluster) -> None:
    """Publish releases of all models, as if they had been converted."""
    sys.path.insert(0, str(TESTS / "runtime" / "format"))
    from bundle_maker import make_bundle

    from flows import plan as planning
    from flows.parameters import ConversionOptions
    from transforms.targets import target_named
    from zoo.store import open_store

    planning.code_digest = lambda: "0" * 64  # as in the toys' flows
    options = ConversionOptions(
        random_weights=0, manifest=str(cluster.manifest), store=cluster.store
    )
    store = open_store(cluster.store)
    for one in planning.plan([], [], options):
        with tempfile.TemporaryDirectory() as folder:
            weights = {"weights.safetensors": f"{one.model} {one.target}".encode()}
            facts = {"model": one.model, "target": one.target, "build_key": one.build_key}
            emulated = target_named(one.target).emulated_here
            facts["state"] = "emulated" if emulated else "validated"
            store.admit(store.propose(make_bundle(Path(folder) / "bundle", weights, **facts)), None)


def _run(cluster: ToyCluster, size: int, kind: Kind) -> Figures:
    before = _flow_runs(cluster)
    began = time.perf_counter()
    cluster.convert(kind, targets=["cpu", "metal"], limits={"minutes_without_worker": 5})
    parent = psutil.Process(cluster.processes[kind].pid)
    server = psutil.Process(cluster.processes["server"].pid)
    most = {"parent": 0, "server": 0}
    busy = {"parent": 0.0, "server": 0.0}
    idle = _computed(server)
    while cluster.processes[kind].poll() is None:
        for name, process in (("parent", parent), ("server", server)):
            most[name] = max(most[name], _memory(process))
            busy[name] = max(busy[name], _computed(process))
        time.sleep(0.2)
    seconds = time.perf_counter() - began
    rows = cluster.table(kind)
    wanted = "published" if kind is Kind.FIRST else "skipped"
    assert len(rows) == 2 * size
    other = [row for row in rows.values() if row["outcome"] != wanted]
    assert not other, (len(other), other[0]["outcome"], other[0]["reason"])
    flow_seconds = json.loads(cluster.result(kind).read_text())["seconds"]
    return Figures(
        models=size,
        database="PostgreSQL",
        kind=kind,
        entries=2 * size,
        seconds=round(seconds, 2),
        flow_seconds=round(flow_seconds, 2),
        per_entry_ms=round(flow_seconds / (2 * size) * 1000, 2),
        parent_cpu_seconds=round(busy["parent"], 2),
        server_cpu_seconds=round(busy["server"] - idle, 2),
        flow_runs=_flow_runs(cluster) - before,
        server_mb=round(most["server"] / _MB, 1),
        parent_mb=round(most["parent"] / _MB, 1),
    )


def _memory(process: psutil.Process) -> int:
    """Return the resident bytes of a process and its descendants."""
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            total += int(each.memory_info().rss)
    except psutil.NoSuchProcess:
        pass
    return total


def _computed(process: psutil.Process) -> float:
    """Return the processor seconds of a process; 0 if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _flow_runs(cluster: ToyCluster) -> int:
    """Return the number of runs of our flows that began on the server."""
    flows = ["convert-zoo", "convert-batch", "convert-model"]
    began = {"state": {"type": {"not_any_": ["SCHEDULED"]}}}
    asked = {"flows": {"name": {"any_": flows}}, "flow_runs": began}
    count: int = cluster.post("/flow_runs/count", asked)
    return count


def _table(found: list[Figures]) -> str:
    names = list(asdict(found[0]))
    rows = [" | ".join(names), " | ".join("---" for _ in names)]
    rows += [" | ".join(str(value) for value in asdict(each).values()) for each in found]
    return "\n".join(f"| {row} |" for row in rows)


def _write(found: list[Figures], folder: Path) -> None:
    (folder / "orchestration.json").write_text(json.dumps([asdict(f) for f in found], indent=1))
    (folder / "orchestration.md").write_text(_table(found) + "\n")


if __name__ == "__main__":
    main()
