"""State that Python keeps, or two programs share, is refused by name and line before lowering."""

from __future__ import annotations

import copy
import functools
import inspect
import random
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from transforms import convert
from transforms.export.prepare import Program, prepare, prepare_module
from zoo.errors import ExportError, LoweringError, UsageError
from zoo.spec import InputSpec, ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
SEEN: list[int] = []


class Kept(nn.Module):
    """A module that calls a function with itself; things and modules are its attributes."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], **kept: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in kept.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> Any:
        """What the function returns."""
        return self.function(self, x)


def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Eager: x, 2x, 3x."""
    self.calls += 1
    return x * self.calls


def counts_late(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Another result from the sixth call on."""
    self.calls += 1
    return x * 2 if self.calls > 5 else x


def recurs(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A streaming layer as people write it."""
    self.hidden = self.cell(x, self.hidden)
    return self.hidden  # type: ignore[no-any-return]


def grows(self: Any, x: torch.Tensor) -> torch.Tensor:
    """The mean of equal inputs is equal: other inputs show it."""
    self.history.append(x)
    return torch.stack(self.history).mean(0)


def windows(self: Any, x: torch.Tensor) -> torch.Tensor:
    """The mean of the last sixteen, once there are so many."""
    self.frames.append(x)
    return x if len(self.frames) < 16 else torch.stack(self.frames[-16:]).mean(0)


def delays(self: Any, x: torch.Tensor) -> torch.Tensor:
    """An echo of twenty calls before."""
    self.line.append(x)
    return x + self.line.popleft()  # type: ignore[no-any-return]


def wraps(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Another result every fiftieth time."""
    self.step = (self.step + 1) % 50
    return x if self.step else x * 2


def nests(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A dictionary in a list."""
    self.state[0]["last"] = self.state[0]["last"] + x
    return self.state[0]["last"] * 1  # type: ignore[no-any-return]


def scales(self: Any, x: torch.Tensor) -> torch.Tensor:
    """The largest so far: as long as the same is given, nothing changes."""
    self.largest = torch.maximum(self.largest, x.abs().max())
    return x / self.largest


def places(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A cache in a buffer, its position in Python."""
    self.cache[self.position] = x[0]
    self.position += 1
    return self.cache.sum(0)  # type: ignore[no-any-return]


def writes_global(_: Any, x: torch.Tensor) -> torch.Tensor:
    """A list of the file's."""
    SEEN.append(1)
    return x * len(SEEN)


def writes_default(_: Any, x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
    """Python's old trap."""
    seen.append(1)
    return x * len(seen)


def writes_data(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A parameter, behind autograd's back; from the second call on always the same."""
    self.gain.data.clamp_(0)
    return x * self.gain  # type: ignore[no-any-return]


def captured() -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """Statistics that are written and not read."""
    mean, var = torch.zeros(3), torch.ones(3)
    return lambda _, x: F.instance_norm(x[None].mT, mean[:3], var[:3], use_input_stats=True)


def counted() -> Callable[[Any, torch.Tensor], torch.Tensor]:
    """A number in a closure."""
    calls = 0

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return function


class Held:
    """An object that is no module."""

    def __init__(self, peak: torch.Tensor | None = None) -> None:
        self.calls, self.peak = 0, peak


def doubles_late(self: Any, x: torch.Tensor) -> torch.Tensor:
    """A counter that shows once in a thousand calls."""
    self.calls += 1
    return x * 2 if self.calls > 1000 else x


def larger(state: Any, x: torch.Tensor) -> torch.Tensor:
    """What an object, a method of it or a partial call remembers."""
    state.peak = torch.maximum(state.peak, x.amax(0))
    return x - state.peak


class Slots:
    """An object without a dictionary."""

    __slots__ = ("peak",)

    def __init__(self) -> None:
        self.peak = torch.full((3,), -9.0)

    def subtract(self, x: torch.Tensor) -> torch.Tensor:
        """Keep a peak."""
        return larger(self, x)


class Shared(nn.Module):
    """State that all instances of a class have in common."""

    history: ClassVar[list[int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count the calls."""
        self.history.append(1)
        return x * len(self.history)


class Default(nn.Module):
    """State in the default of an argument."""

    def forward(self, x: torch.Tensor, *, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
        """Count the calls."""
        seen.append(1)
        return x * len(seen)


def cache() -> nn.Module:
    """With a buffer of its own."""
    module = Kept(places, position=0)
    module.register_buffer("cache", torch.zeros(99, 3))
    return module


CASES: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "number": (lambda: Kept(counts, calls=0), "calls", "self.calls += 1"),
    "rare": (lambda: Kept(doubles_late, calls=0), "calls", "self.calls += 1"),
    "late": (lambda: Kept(counts_late, calls=0), "calls", "self.calls += 1"),
    "submodule": (lambda: nn.Sequential(Kept(counts, calls=0)), "0.calls", "self.calls += 1"),
    "object": (lambda: Kept(lambda s, x: counts(s.held, x), held=Held()), "held.calls", "+= 1"),
    "tensor": (
        lambda: nn.Sequential(Kept(recurs, cell=nn.GRUCell(3, 3), hidden=None)),
        "0.hidden", "self.hidden = self.cell(x, self.hidden)",
    ),
    "list": (lambda: Kept(grows, history=[]), "history", "self.history.append(x)"),
    "window": (lambda: Kept(windows, frames=[]), "frames", "self.frames.append(x)"),
    "delay": (
        lambda: Kept(delays, line=deque([torch.zeros(2, 3)] * 20)), "line", "self.line.append(x)",
    ),
    "wrapping": (lambda: Kept(wraps, step=0), "step", "self.step = (self.step + 1) % 50"),
    "nested": (
        lambda: Kept(nests, state=[{"last": torch.zeros(2, 3)}]),
        "state[0].last", 'self.state[0]["last"] =',
    ),
    "largest": (lambda: Kept(scales, largest=torch.tensor(0.0)), "largest", "torch.maximum("),
    "position": (cache, "position", "self.position += 1"),
    "global": (lambda: Kept(writes_global), "function.SEEN", "SEEN.append(1)"),
    "default": (lambda: Kept(writes_default), "function.__defaults__[0]", "seen.append(1)"),
    "method": (lambda: Kept(lambda s, x: s.f(x), f=Slots().subtract), "f.peak", "state.peak ="),
    "partial": (
        lambda: Kept(lambda s, x: s.f(x), f=functools.partial(larger, Held(torch.zeros(3)))),
        "f[0].peak", "state.peak =",
    ),
    "class": (Shared, "history", "self.history.append(1)"),
    "keyword": (Default, "seen", "seen.append(1)"),
    "iterator": (
        lambda: Kept(lambda s, x: x * next(s.rest), rest=iter([1.0, 2.0, 3.0] * 99)),
        "rest", "next(s.rest)",
    ),
    "noise": (
        lambda: Kept(lambda s, x: x * s.noise.random(), noise=np.random.default_rng(0)),
        "noise", "s.noise.random()",
    ),
    "closure": (lambda: Kept(counted()), "function.calls", "calls += 1"),
    "statistics": (lambda: Kept(captured()), "function.mean", "F.instance_norm("),
    "data": (
        lambda: Kept(writes_data, gain=nn.Parameter(torch.tensor([-1.0, 1, 2]))),
        "gain", "self.gain.data.clamp_(0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "name", "code"), CASES.values(), ids=CASES)
def test_state_in_python_is_refused_by_name_and_line(
    make: Callable[[], nn.Module], name: str, code: str
) -> None:
    """Eager's later calls would differ from the artifact's: the error says what writes it where."""
    with pytest.raises(ExportError) as raised:
        prepare_module("main", Program(make().eval(), (X,)))
    text = str(raised.value)
    assert f"{name!r} is changed by " in text
    place, _, line = text.partition("test_python_state.py:")[2].partition(" (")
    assert code in inspect.getsource(sys.modules[__name__]).splitlines()[int(place) - 1]
    assert code in line
    assert "register_buffer(" in text
    assert "calls=3" in text


def test_an_entrys_program_is_refused_too() -> None:
    """By the name in the model, in a process that has not begun to export."""
    spec = ProgramSpec(inputs=(InputSpec(name="input", shape=(2, 3)),), outputs=("y",))
    with pytest.raises(ExportError, match=r"\n  '0.calls' is changed by"):
        prepare(nn.Sequential(Kept(counts, calls=0)).eval(), spec, forks=True)


def test_unseeded_numbers_of_python_are_refused() -> None:
    """Of nearly always the same results; a number that is made of a seed converts."""
    rare = Kept(lambda _, x: x if random.random() < 0.999 else -x).eval()  # noqa: S311
    with pytest.raises(ExportError, match="draws numbers from Python's or NumPy's random"):
        prepare_module("main", Program(rare, (X,)))
    seeded = Kept(lambda _, x: x * float(np.random.RandomState(3).rand()), calls=0)
    prepare_module("main", Program(seeded.eval(), (X,)))


@pytest.mark.parametrize("more", [99, 0], ids=["differs", "ends"])
def test_hidden_state_is_refused_by_what_it_does(more: int) -> None:
    """What a generator keeps has no name, and results differ all the same, or there are none."""
    numbers = iter([1.0] + [2.0] * more)
    hidden = (number for number in numbers)
    with pytest.raises(ExportError, match="gives other results when it is called with the same"):
        prepare_module("main", Program(Kept(lambda _, x: x * next(hidden)).eval(), (X,)))


@functools.cache
def table(size: int) -> torch.Tensor:
    """Made once for all."""
    return torch.arange(size).float().cos()


def masks(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Builds its mask when it first sees a length, and notes how often it was called."""
    if self.mask is None or len(self.mask) != len(x):
        self.mask = torch.ones(len(x), len(x)).tril()
    self.tables.setdefault(x.shape[1], torch.arange(x.shape[1]).float().sin())
    self.last = (self.mask @ x) * self.tables[x.shape[1]] + table(3)
    self.log.append(self.last)
    self.calls += 1
    return self.last  # type: ignore[no-any-return]


def test_what_only_saves_time_is_no_state() -> None:
    """Masks, tables and caches that a call makes, a noted result, a log unread, operators."""
    module = Kept(masks, mask=None, tables={}, last=None, log=[], calls=0, ops=torch.ops).eval()
    expected = X.cumsum(0) * torch.arange(3).float().sin() + torch.arange(3).float().cos()
    prepared = prepare_module("main", Program(module, (X,)))
    torch.testing.assert_close(prepared.goldens[0].outputs["output"], expected)


def test_random_numbers_are_no_state() -> None:
    """They are refused for what they are."""
    with pytest.raises(ExportError, match=r"random numbers are drawn by .*\(.*aten\.randn"):
        prepare_module("main", Program(Kept(lambda _, x: x + torch.randn(3)).eval(), (X,)))


@pytest.mark.parametrize("form", ["same", "view", "attribute", "exported"])
def test_a_buffer_of_two_programs_is_refused(form: str, tmp_path: Path) -> None:
    """The second would begin at zeros where eager goes on from what the first has written."""
    owner = nn.Module()
    owner.register_buffer("cache", torch.zeros(2, 3))
    write = Kept(lambda s, x: s.owner.cache.add_(x) * 1, owner=owner).eval()
    read: Any = Kept(lambda s, x: s.owner.cache + x, owner=owner).eval()
    if form == "view":
        read = Kept(lambda s, x: s.rows + x).eval()
        read.register_buffer("rows", owner.get_buffer("cache")[:1])
    elif form == "attribute":
        read = Kept(lambda s, x: s.rows + x, rows=owner.get_buffer("cache")).eval()
    elif form == "exported":
        read = torch.export.export(read, (X,))
    words = r"program prefill: writes buffer 'owner\.cache', which program decode has too"
    with pytest.raises(ExportError, match=words):
        convert({"decode": (read, (X,)), "prefill": (write, (X,))}, out=tmp_path / "none")


def test_equal_buffers_and_those_that_nothing_writes_may_be_shared(tmp_path: Path) -> None:
    """Each program goes on from its own copy, as eager does; a table is read by both."""
    first = Kept(lambda s, x: s.cache.add_(x) * s.table).eval()
    first.register_buffer("cache", torch.zeros(2, 3))
    first.register_buffer("table", torch.full((3,), 2.0))
    second = copy.deepcopy(first)
    second.table = first.table
    programs = {"one": (first, (X,)), "two": (second, (X,))}
    bundle = convert(programs, out=tmp_path / "both", measure_seconds=0)
    assert all(p.state is not None for p in bundle.manifest.programs)


N = Dim("n", min=2, max=63)
WORDS: dict[str, tuple[Callable[[Any, torch.Tensor], Any], Any, str]] = {
    "registered": (
        lambda s, x: s.register_buffer("pos", x[0]) or x + s.pos, None,
        r"test_python_state\.py:\d+: buffer 'pos' is registered in forward\. Register it in __init",
    ),
    "input": (
        lambda s, x: s.register_buffer("last", x) or x * 1, None, r"self\.last = x\.clone\(\)",
    ),
    "device": (lambda _, x: x.to("meta"), None, "output output is on device meta. Return tensors"),
    "fraction": (
        lambda _, x: x * 2 if (x.shape[1] / 4) % 1 == 0.75 else x * 1, ({1: N},),
        r"is another program at axis 1 of x = 2: .* there \(.*test_python_state\.py:\d+\)",
    ),
    "integer": (
        lambda _, x: x * 2 if (x.shape[1] / 2).is_integer() else x * 1, ({1: N},),
        r"is another program at axis 1 of x = 2: .* there \(.*test_python_state\.py:\d+\)",
    ),
    "odd": (
        lambda _, x: x * 2 if x.shape[1] % 2 else x * 1, ({1: N},),
        r"is another program at axis 1 of x = 2: .* there \(.*test_python_state\.py:\d+\)",
    ),
    "equal": (
        lambda _, x: x if torch.equal(x, x * 2) else -x, None,
        r"a branch depends on values of a tensor at .*test_python_state\.py:\d+\. .*torch\.where",
    ),
    "numpy": (lambda _, x: x.numpy(), None, r"at .*test_python_state\.py:\d+: .*with torch"),
    "address": (
        lambda _, x: x + x.data_ptr() % 2, None, r"at .*test_python_state\.py:\d+: .*data_ptr out",
    ),
    "lstsq": (
        lambda _, x: torch.linalg.lstsq(x.t(), x.t() + 1)[0], None,
        r"at .*test_python_state\.py:\d+: .*linalg_lstsq.*pinv",
    ),
    "autograd": (
        lambda _, x: torch.autograd.grad(x.sum(), x)[0], None,
        r"at .*test_python_state\.py:\d+: .*Leave gradients out",
    ),
    "grad": (
        lambda _, x: torch.func.grad(lambda y: y.square().sum())(x), None,
        r"derivatives are taken by .*test_python_state\.py:\d+",
    ),
    "sparse": (
        lambda _, x: torch.sparse.mm(x.t().to_sparse(), x), None,
        r"torch\.sparse_coo: .*test_python_state\.py:\d+.*dense",
    ),
    "fixed": (
        lambda _, x: x.view(2, 3) * 2, ({1: N},),
        r"\(3\)\. No other .* the model fixes it: leave that axis out",
    ),
    "data": (
        lambda _, x: x + nn.Parameter(torch.ones(3)).data.mul_(2), None, r"through `\.data`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("function", "shapes", "words"), WORDS.values(), ids=WORDS)
def test_refusals_have_the_right_words(function: Any, shapes: Any, words: str) -> None:
    """The user's line and what to do, nothing that torch says to its own developers."""
    module = Kept(function).eval()
    if "last" in words:
        module.register_buffer("last", torch.zeros(2, 3))
    with pytest.raises((ExportError, LoweringError), match=words) as raised:
        prepare_module("main", Program(module, (X,), dynamic_shapes=shapes))
    for strange in ("please report", "file an issue", "/issues", "INTERNAL", "constant's list"):
        assert strange not in str(raised.value)
    assert ("Where the example has 1" in str(raised.value)) == (1 in X.shape)


def _force(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(leaf.exp().sum(), leaf)[0]


@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.parametrize("function", [_force, torch.func.jacfwd(lambda y: y.square().sum(0))])
def test_derivatives_are_to_be_written_out(function: Callable[..., torch.Tensor]) -> None:
    """The export records none of them."""
    module = Kept(lambda _, x: function(x)).eval()
    with pytest.raises(ExportError, match=r"rite (them|derivatives) out") as raised:
        prepare_module("main", Program(module, (X,)))
    assert "'constant'" not in str(raised.value)


def test_a_remainder_of_a_fraction_of_a_size_converts(tmp_path: Path) -> None:
    """Torch takes (n / 4) % 1 for 0 whatever n is."""
    module = Kept(lambda _, x: x * ((x.shape[1] / 4) % 1)).eval()
    bundle = convert(module, (X,), dynamic_shapes=({1: N},), out=tmp_path / "f", measure_seconds=0)
    assert bundle.sizes == ("n from 2 to 63",)


class Tied(nn.Module):
    """A head whose weight is the table's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.middle = nn.Embedding(32, 32), nn.Linear(32, 32)
        self.head = nn.Linear(32, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of the table's rows."""
        return self.head(self.middle(self.embed(ids)))  # type: ignore[no-any-return]


def test_a_tied_weight_is_kept_by_either_name(tmp_path: Path) -> None:
    """Its table's and its head's mean one tensor; a name of none is refused."""
    module, ids = Tied().eval(), (torch.tensor([[1, 2]]),)
    for name in ("embed", "head.weight"):
        bundle = convert(
            module, ids, precision="int8-weight-only", keep=[name], out=tmp_path / name,
            tolerances={"float32": 1.0}, measure_seconds=0,
        )  # fmt: skip
        costs = [cost.parameter for log in bundle.report.passes for cost in log.rounding]
        assert costs == ["middle.weight"]
    with pytest.raises(UsageError, match="names no parameter"):
        convert(module, ids, precision="int8", keep=["none"], out=tmp_path / "none")


def test_torchvision_is_imported_behind_us() -> None:
    """Also where its binary does not fit the installed torch; its box suppression computes."""
    code = (
        "import transforms, torchvision, torch; b = torch.tensor([[0., 0, 1, 1]] * 2);"
        "print(torchvision.ops.nms(b, torch.tensor([0.5, 0.6]), 0.5).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1]"
