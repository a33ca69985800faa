"""How freely property tests search, what a file of tests may cost, and what all of them share."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from menagerie.paths import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The same examples at every run, so that a green suite stays green; `make test-all` explores.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Processor seconds, children included: a busy machine does not make them more. What a file needs
# beyond the budget belongs behind `make test-all`, or is made once and shared.
BUDGET = 240.0
UNLIMITED = tuple(
    f"tests/{part}/" for part in ("container", "faults", "infra/local", "sweep", "ui")
)
# Most tests make bundles by hand and sign none; those of `tests/attacks` forbid that again.
os.environ.setdefault("MENAGERIE_ALLOW_UNSIGNED", "1")
# What a home keeps of its compilers: torch's headers, libc++ for a Mac.
_COMPILED = ("headers", "zig")


def _lend(lender: Path, borrower: Path, names: Iterable[str]) -> None:
    borrower.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in names:
        (lender / name).mkdir(exist_ok=True)
        (borrower / name).symlink_to(lender / name)


if "PYTEST_XDIST_WORKER" not in os.environ:
    # Keys, and what was seen of a store, go with the session: the next has stores of equal paths.
    _scratch = tempfile.TemporaryDirectory(prefix="menagerie-tests-")
    _lend(home(), Path(_scratch.name, "home"), (*_COMPILED, "emulator"))
    for _name in ("HOME", "KEYS", "TRUST"):
        os.environ[f"MENAGERIE_{_name}"] = f"{_scratch.name}/{_name.lower()}"
    Path(os.environ["MENAGERIE_TRUST"]).mkdir()
# Files of half a minute and more, the longest first: begun last, one would keep a worker alone.
LONGEST = (
    "cases/test_operators.py",
    "transforms/passes/test_expand_recurrent_layers.py",
    "transforms/passes/test_decompose_stft.py",
    "faults/test_in_short.py",
    "runtime/metal/test_double.py",
    "transforms/test_convert.py",
    "transforms/export/test_python_state.py",
    "transforms/passes/test_whole_ranges.py",
    "tasks/test_model_process.py",
    "transforms/test_refuting.py",
    "transforms/passes/test_decompose_rare_operators.py",
    "runtime/speech/test_token_equality.py",
    "runtime/speech/test_whisper_token_equality.py",
    "transforms/lowering/test_metal_run.py",
)
_COST = "processor_seconds"
_costs: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first, which is where xdist begins."""
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps Python from looking for garbage among what is imported: a fifth of a test's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def _spent() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measures what a test costs, fixtures included."""
    item.stash[_BEGUN] = _spent(), time.perf_counter()
    return (yield)


_BEGUN = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Sends the cost along with the last report, to whichever process sums up."""
    report = yield
    if report.when == "teardown":
        spent, began = item.stash[_BEGUN]
        # The time of a process that an earlier file began is told when it ends: perhaps now.
        most = (time.perf_counter() - began) * (os.cpu_count() or 1)
        report.user_properties.append((_COST, min(_spent() - spent, most)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Sums up by file."""
    if report.when == "teardown":
        _costs[report.nodeid.partition("::")[0]] += dict(report.user_properties).get(_COST, 0.0)


def _over_budget() -> dict[str, float]:
    if os.environ.get("HYPOTHESIS_PROFILE") == "explore":
        return {}
    return {f: s for f, s in _costs.items() if s > BUDGET and not f.startswith(UNLIMITED)}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A file over its budget fails the run."""
    if _over_budget() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The costliest files, and those over the budget."""
    costliest = sorted(_costs.items(), key=lambda cost: -cost[1])[:5]
    if sum(seconds for _, seconds in costliest) > BUDGET:
        listing = ", ".join(f"{file} {seconds:.0f} s" for file, seconds in costliest)
        terminalreporter.write_line(f"costliest by processor time: {listing}")
    for file, seconds in _over_budget().items():
        terminalreporter.write_line(f"OVER BUDGET: {file} took {seconds:.0f} of {BUDGET:.0f} s")


@pytest.fixture(scope="session")
def lend_compiled() -> Callable[[Path], Path]:
    """Makes a test's own home, given its path, with what the developer's home has compiled.

    Anew in each it would take the compilers half a minute, for Metal two.
    """
    lender = home()

    def lend(borrower: Path) -> Path:
        _lend(lender, borrower, _COMPILED)
        return borrower

    return lend


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect API on a database that goes with the session."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    unwatched = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with prefect_test_harness(server_startup_timeout=300), unwatched:
        yield
