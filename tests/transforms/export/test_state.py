"""State that a program keeps in buffers: exported, lowered, proven over calls, reset."""

from __future__ import annotations

import copy
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from torch.export import Dim

from menagerie.format.folder import open_bundle
from menagerie.library import native_tool
from menagerie.session import Session
from tests.pieces import assert_as_eager
from transforms import Program, convert
from transforms.bisect import diagnose
from transforms.export.prepare import prepare, prepare_module
from transforms.graph.call_signature import state_of
from transforms.targets import Settings, target_named
from zoo.errors import ExportError, SessionError, UsageError
from zoo.spec import Dimension, InputSpec, ProgramSpec

if TYPE_CHECKING:
    from pathlib import Path

CAPACITY = 6


class Cache(nn.Module):
    """Attention over all tokens so far: keys, values and their number are buffers."""

    keys: torch.Tensor
    values: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("keys", torch.zeros(1, CAPACITY, 8))
        self.register_buffer("values", torch.zeros(1, CAPACITY, 8), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One token (1, 8) more; what it attends to."""
        place = self.count.reshape(1)
        self.keys.index_copy_(1, place, self.key(x)[:, None])
        self.values.index_copy_(1, place, self.value(x)[:, None])
        self.count += 1
        scores = self.query(x)[:, None] @ self.keys.transpose(1, 2)
        scores = scores.masked_fill(torch.arange(CAPACITY) >= self.count, -torch.inf)
        return (torch.softmax(scores, -1) @ self.values)[:, 0]


class Stream(nn.Module):
    """A causal convolution over chunks: the last samples of one are the context of the next."""

    context: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inner = nn.Conv1d(2, 3, 4)
        self.register_buffer("context", torch.full((1, 2, 3), 0.5))

    def forward(self, chunk: torch.Tensor) -> dict[str, torch.Tensor]:
        """As many frames (1, 3, n) as samples (1, 2, n) are given, and what is kept."""
        whole = torch.cat([self.context, chunk], -1)
        self.context = whole[..., -3:].clone()
        return {"frames": self.inner(whole), "kept": self.context}


def tokens(count: int, seed: int) -> list[np.ndarray]:
    """Tokens that no golden case has."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(1, 8)).astype(np.float32) for _ in range(count)]


def eagers(inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What eager PyTorch makes of calls in a row, from a fresh module on."""
    module = Cache().eval()
    with torch.no_grad():
        return [module(torch.from_numpy(x)).numpy() for x in inputs]


@pytest.fixture(scope="module", params=["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def cache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose programs each keep a cache of equal first values, on each target."""
    module, folder = Cache().eval(), tmp_path_factory.mktemp(request.param) / "cache"
    x = torch.randn(1, 8)
    programs = {
        "main": Program(module, (x,)),
        "second": Program(copy.deepcopy(module), (x,), calls=2),
    }
    convert(programs, target=request.param, out=folder, measure_seconds=0.05)
    assert not module.keys.any()  # the module is as it was
    assert not module.count.any()
    return folder


def test_a_bundle_says_what_is_state_and_how_many_calls_prove_it(cache: Path) -> None:
    """Only buffers that calls write are state; golden cases are runs of as many calls as given."""
    main, second = open_bundle(cache).manifest.programs
    assert main.state is not None
    assert second.state is not None
    assert set(main.state.constants) == {"keys", "values", "count"}
    assert set(main.constants) > set(main.state.constants)
    assert (main.state.calls, main.golden_cases) == (4, 4)
    assert (second.state.calls, second.golden_cases) == (2, 2)


def test_golden_calls_are_eagers_in_a_row(cache: Path) -> None:
    """Each call's output is what eager gives after the calls before it, from the first state on."""
    [entry, _] = open_bundle(cache).manifest.programs
    golden = load_file(cache / entry.golden.path)
    expected = eagers([golden[f"{call}/input/x"] for call in range(4)])
    for call in range(4):
        np.testing.assert_array_equal(golden[f"{call}/output/output"], expected[call])
    assert len({golden[f"{call}/output/output"].tobytes() for call in range(4)}) == 4


def test_a_session_remembers_and_a_reset_makes_it_forget(cache: Path) -> None:
    """To the cache's end as eager, and bit for bit the same again after a reset."""
    inputs = tokens(CAPACITY, 3)
    with Session(cache, threads=1) as session:
        assert session.keeps_state
        first = [session.run({"x": x})["output"] for x in inputs]
        session.reset()
        again = [session.run({"x": x})["output"] for x in inputs]
    for ours, theirs, repeated in zip(first, eagers(inputs), again, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(ours, repeated)


def test_sessions_do_not_see_each_others_state(cache: Path) -> None:
    """Of one program or of two that share weights: calls in turns give what calls alone give."""
    ones, others = tokens(4, 5), tokens(4, 6)
    with (
        Session(cache, threads=1) as one,
        Session(cache, threads=1) as other,
        Session(cache, "second", threads=1) as second,
    ):
        found: list[tuple[np.ndarray, ...]] = []
        for x, y in zip(ones, others, strict=True):
            runs = one.run({"x": x}), other.run({"x": y}), second.run({"x": y})
            found.append(tuple(run["output"] for run in runs))
            other_state_gone = Session(cache, threads=1)
            other_state_gone.run({"x": x})
            other_state_gone.close()
    for (a, b, c), x, y in zip(found, eagers(ones), eagers(others), strict=True):
        np.testing.assert_allclose(a, x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(b, y, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(b, c)


def test_threads_that_share_a_session_share_its_state(cache: Path) -> None:
    """Calls are served one after another: none is lost, none counted twice."""
    [x] = tokens(1, 7)
    with Session(cache, threads=1) as session:
        threads = [
            threading.Thread(target=session.run, args=({"x": x},)) for _ in range(CAPACITY - 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = session.run({"x": x})["output"]
    np.testing.assert_allclose(last, eagers([x] * CAPACITY)[-1], rtol=1e-4, atol=1e-5)


def test_the_native_tool_proves_calls_in_a_row(cache: Path) -> None:
    """`menagerie-run` resets before each run of calls, so that all agree; it times from a reset."""
    if open_bundle(cache).manifest.runtime != "cpu":
        return  # there is one tool a machine, for its own device
    command = [str(native_tool()), "--allow-unsigned", "--bench", "10", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.endswith("ok") for line in done.stdout.splitlines()[2:6]] == [True] * 4
    assert done.stdout.count("over 10 runs") == 2


def test_a_run_that_fails_loses_the_state_and_says_so(tmp_path: Path) -> None:
    """Past the cache's end the index is wrong: no run goes on with half a state."""
    convert(Cache().eval(), (torch.randn(1, 8),), out=tmp_path / "cache", measure_seconds=0)
    inputs = tokens(CAPACITY + 1, 8)
    with Session(tmp_path / "cache", threads=1) as session:
        with pytest.raises(SessionError, match="x is missing"):
            session.run({})  # refused before anything was computed: the state is as it was
        for x in inputs[:CAPACITY]:
            session.run({"x": x})
        with pytest.raises(SessionError, match="an index is out of range: index_put"):
            session.run({"x": inputs[-1]})
        with pytest.raises(SessionError, match=r"state was lost in a run that failed\. Reset it"):
            session.run({"x": inputs[0]})
        session.reset()
        found = session.run({"x": inputs[0]})["output"]
    np.testing.assert_allclose(found, eagers(inputs[:1])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_chunks_of_a_stream_are_the_whole(target: str, tmp_path: Path) -> None:
    """Of any length, one after another: as the convolution over all of it, first state included."""
    module, chunk = Stream().eval(), Dim("n", min=1, max=16)
    bundle = convert(
        module, (torch.randn(1, 2, 5),), dynamic_shapes=({2: chunk},), target=target,
        out=tmp_path / "stream", calls=3, measure_seconds=0,
    )  # fmt: skip
    assert bundle.manifest.programs[0].golden_cases == 4 * 3  # given, middle, low and high sizes
    torch.testing.assert_close(module.context, torch.full((1, 2, 3), 0.5), rtol=0, atol=0)
    whole = torch.randn(1, 2, 20, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = module.inner(torch.cat([module.context, whole], -1)).numpy()
    with Session(tmp_path / "stream", threads=1) as session:
        parts = [session.run({"chunk": c.numpy()}) for c in whole.split([1, 7, 2, 10], -1)]
    np.testing.assert_allclose(
        np.concatenate([p["frames"] for p in parts], -1), expected, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(parts[0]["kept"][..., -1:], whole[..., :1].numpy())
    np.testing.assert_array_equal(parts[-1]["kept"], whole[..., -3:].numpy())


class Taps(nn.Module):
    """A delay line of three, the state before it was written, and a ring of four rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Buffer(torch.zeros(2)) for _ in range(3))
        self.ring = nn.Buffer(torch.zeros(4, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What was the newest, as it is and in two forms; all taps; the ring between two writes."""
        old = self.first.clone(), self.first[:1].clone(), torch.cat([self.first])
        self.third.copy_(self.second)
        self.second.copy_(self.first)
        self.first.copy_(x)
        first, powers = torch.zeros(1, dtype=torch.int64), 10 ** torch.arange(4.0)
        self.ring.index_copy_(0, first, x[None])
        once = self.ring.clone()
        self.ring.index_add_(0, first, x[None])
        self.ring.copy_(self.ring.roll(1, 0))  # rows move over one another
        return (
            *old,
            self.first + 10 * self.second + 100 * self.third,
            powers @ self.ring,
            powers @ once,
            once,
        )


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_state_before_a_write_is_kept_and_returned(target: str, tmp_path: Path) -> None:
    """Buffers that take each other's values take those of before the call, in any order."""
    folder = tmp_path / "taps"
    convert(Taps().eval(), (torch.ones(2),), target=target, out=folder, measure_seconds=0)
    with Session(folder, threads=1) as session:
        runs = [session.run({"x": np.full(2, n, np.float32)}) for n in range(1, 5)]
    assert [[float(v.flat[0]) for v in run.values()] for run in runs] == [
        [0, 0, 0, 1, 20, 1, 1], [1, 1, 1, 12, 240, 22, 2],
        [2, 2, 2, 123, 2460, 243, 3], [3, 3, 3, 234, 4682, 2464, 4],
    ]  # fmt: skip


class Twins(nn.Module):
    """Four buffers, of which two and two end as one value, the first one after it or before."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Buffer(torch.zeros(4, 2)) for _ in range(4))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What is kept in b, itself; what was in c and a."""
        before = self.a + 10 * self.c
        self.b[i] = x
        self.a.copy_(self.b)
        self.c.add_(x)
        self.d.copy_(self.c)
        return self.b, self.d * 1, before


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_two_buffers_may_end_as_one_value(target: str, tmp_path: Path) -> None:
    """Torch looks buffers up by the name of what they end as, and would lose one."""
    calls = [(torch.full((1, 2), float(n)), torch.tensor([n])) for n in (1, 3, 2)]
    made = convert(Twins().eval(), calls[0], target=target, out=tmp_path / "b", measure_seconds=0)
    assert_as_eager(made.folder, Twins(), *calls)


class Totals(nn.Module):
    """Sums and maxima of all rows so far."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.most = nn.Buffer(torch.zeros(3)), nn.Buffer(torch.full((3,), -9.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Add a call's rows."""
        self.sums += x.sum(0)
        self.most.copy_(self.most.maximum(x.amax(0)) + 1)
        return self.sums.clone(), self.most * 1


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_state_is_added_to_once_by_all_threads_of_a_row(target: str, tmp_path: Path) -> None:
    """Of any number of rows, whose groups of threads all read what one of them changes."""
    x, rows = torch.randn(5, 3), Dim("rows", min=1, max=3000)
    how = {"dynamic_shapes": ({0: rows},), "target": target, "out": tmp_path / "b"}
    convert(Totals().eval(), (x,), **how, measure_seconds=0)
    calls = [(torch.randint(-8, 9, (n, 3)).float(),) for n in (1, 5, 100, 3000)]
    assert_as_eager(tmp_path / "b", Totals(), *calls)
    shaders = "".join(each.read_text() for each in tmp_path.rglob("kernels.metal"))
    assert "constant float*" not in shaders  # memory that nobody may write meanwhile


class Ring(nn.Module):
    """Rows at a place that is counted, each once more at a place that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.count = nn.Buffer(torch.zeros(3, 4, 2)), nn.Buffer(torch.tensor(0))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Writes with numbers, slices and new axes beside the place, in place and by views."""
        self.rows[0, self.count % 4] = x
        self.rows[1:, None, i] = x[None]
        self.rows[2, i, 1] += 7
        self.rows[1][i].mul_(2)
        self.rows[..., i, :1] = self.count
        self.count += 1
        return self.rows[:, i], self.rows


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_state_is_written_at_places_that_are_tensors(target: str, tmp_path: Path) -> None:
    """Also from the end, and past the end the call fails."""
    eager, folder = Ring().eval(), tmp_path / "ring"
    given = (torch.ones(2), torch.tensor(1))
    convert(Ring().eval(), given, target=target, out=folder, measure_seconds=0)
    with Session(folder, threads=1) as session, torch.no_grad():
        for place in (0, 3, -1, -4, 2, 1):
            x, i = torch.randn(2), torch.tensor(place)
            found = session.run({"x": x.numpy(), "i": i.numpy()})
            for value, wanted in zip(found.values(), eager(x, i), strict=True):
                np.testing.assert_array_equal(value, wanted.numpy())
        with pytest.raises(SessionError, match="out of range"):
            session.run({"x": x.numpy(), "i": np.array(4)})


def test_an_exported_program_keeps_its_state_too() -> None:
    """Exported elsewhere, with its own buffers; those that it is given stay as they are."""
    exported = torch.export.export(Stream().eval(), (torch.randn(1, 2, 5),))
    prepared = prepare_module("main", Program(exported, calls=2))
    assert state_of(prepared.program) == ("context",)
    assert prepared.calls == 2
    first, second = prepared.goldens
    with torch.no_grad():
        module = Stream().eval()
        for case in (first, second):
            expected = module(case.inputs["chunk"])["frames"]
            torch.testing.assert_close(case.outputs["frames"], expected, rtol=0, atol=0)
    assert torch.equal(exported.state_dict["context"], torch.full((1, 2, 3), 0.5))


def test_an_entrys_program_is_called_as_often_as_it_says() -> None:
    """Every size's golden case is a run of calls from the first state, each with its own seed."""
    spec = ProgramSpec(
        inputs=(InputSpec(name="chunk", shape=(1, 2, "n")),),
        outputs=("frames",),
        dimensions={"n": Dimension(low=1, high=9)},
        calls=2,
    )
    module = Stream().eval()
    prepared = prepare(module, spec)
    assert [case.dimensions["n"] for case in prepared.goldens] == [5, 5, 1, 1, 9, 9]
    for start in (0, 2, 4):
        fresh = Stream().eval()
        for case in prepared.goldens[start : start + 2]:
            with torch.no_grad():
                expected = fresh(case.inputs["chunk"])["frames"]
            torch.testing.assert_close(case.outputs["frames"], expected, rtol=0, atol=0)
    inputs = prepared.goldens[1].inputs
    assert not torch.equal(inputs["chunk"], prepared.goldens[0].inputs["chunk"])
    one, two = (prepared.eager(inputs) for _ in range(2))  # as eager is timed: always a first call
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    assert torch.equal(one["frames"], two["frames"])


def test_the_search_for_a_wrong_node_says_what_it_cannot_search(tmp_path: Path) -> None:
    """It runs calls from the first state alone: of a fault in a later call it says just that."""
    prepared = prepare_module("main", Program(Cache().eval(), (torch.randn(1, 8),)))
    found = diagnose(
        {"main": prepared}, [("main", 1), ("main", 3)], Settings(target=target_named("cpu")),
        folder=tmp_path / "found", seconds=60,
    )  # fmt: skip
    assert found.divergence is None
    assert "program main keeps state" in found.detail
    assert "shows in later calls" in found.detail


def test_too_many_calls_are_reported(tmp_path: Path) -> None:
    """The cache's end is reached while golden cases are made: which call, and what to do."""
    with pytest.raises(ExportError, match=r"in call 7 of 7 after a reset: .*fewer `calls`"):
        convert(Cache().eval(), (torch.randn(1, 8),), out=tmp_path / "none", calls=7)
    with pytest.raises(UsageError, match="golden cases cannot be 0 calls"):
        convert(Cache().eval(), (torch.randn(1, 8),), out=tmp_path / "none", calls=0)
    assert not (tmp_path / "none").exists()


def test_what_is_assigned_deep_inside_is_kept() -> None:
    """`self.buffer = new` in a submodule, two exchanged among them: torch.export forgets it."""

    class Exchanged(nn.Module):
        one: torch.Tensor
        two: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones(3))
            self.register_buffer("two", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one, self.two = self.two, self.one + x
            return self.one * 2

    inner = Exchanged().eval()
    prepared = prepare_module(
        "main", Program(nn.Sequential(inner).eval(), (torch.ones(3),), calls=3)
    )
    program = prepared.program
    assert set(state_of(program)) == {"0.one", "0.two"}
    assert "forward" not in vars(inner)
    assert torch.equal(inner.one, torch.ones(3))
    again = program.module(check_guards=False)
    for case in prepared.goldens:
        found = again(*case.inputs.values())
        torch.testing.assert_close(found, case.outputs["output"], rtol=0, atol=0)
    assert [float(case.outputs["output"][0]) for case in prepared.goldens] == [0.0, 4.0, 2.0]


def test_a_buffer_that_was_none_is_refused() -> None:
    """What is first made in a call has no first value to reset to."""

    class Late(nn.Module):
        cache: torch.Tensor | None

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache = x if self.cache is None else self.cache + x
            return self.cache

    with pytest.raises(ExportError, match=r"buffer 'cache' is assigned a tensor.*Register it with"):
        prepare_module("main", Program(Late().eval(), (torch.ones(3),)))


@pytest.mark.parametrize("part", [lambda x: x[:2], lambda x: x.t()], ids=["rows", "turned"])
@pytest.mark.parametrize("written", ["whole", "part"])
def test_memory_under_two_names_is_refused(part: Any, written: str) -> None:
    """What is written under one name would have to be read under the other: torch cannot."""

    class Twice(nn.Module):
        whole: torch.Tensor
        part: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(4, 4))
            self.register_buffer("part", part(self.whole))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.get_buffer(written).add_(x)
            return self.part * 2 + self.whole[:1]

    words = "shares its memory: 'whole' and 'part'. Register the memory once, and take"
    with pytest.raises(ExportError, match=words):
        prepare_module("main", Program(Twice().eval(), (torch.ones(1, 4),)))
