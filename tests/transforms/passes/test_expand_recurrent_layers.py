"""Recurrent layers: written out for a few steps, the runtime's kernel or a loop for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves

from tests.pieces import assert_as_eager, run_piece
from transforms import Program, convert, run_passes
from transforms.export.prepare import prepare_module
from transforms.passes.expand_recurrent_layers import ExpandRecurrentLayers
from zoo.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# torch's own notes: on a second list of a layer's weights, and on what oneDNN does not compute.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{start}:UserWarning")
    for start in ("The tensor attribute", "LSTM with projections")
]

_KERNEL = torch.ops.aten.mkldnn_rnn_layer.default


class _Short(nn.Module):
    """A decoder's step with its state, as a transducer has it, and a sequence read both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.step = nn.LSTM(16, 8, num_layers=2, batch_first=True)
        self.both = nn.LSTM(16, 6, bidirectional=True)

    def forward(
        self, token: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        y, state = self.step(self.table(token), (hidden, cell))
        z, (last, _) = self.both(x)
        return y, *state, z, last


class _Long(nn.Module):
    """Every kind of layer over sequences; widths that fill no vector, and such that do."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.stated = nn.LSTM(6, 16, bias=False)
        self.gru = nn.GRU(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.plain_gru = nn.GRU(6, 9, bias=False)
        self.rnn = nn.RNN(6, 7, bidirectional=True, nonlinearity="relu")
        self.tanh = nn.RNN(6, 11, batch_first=True)

    def forward(
        self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        steps_first = x.transpose(0, 1)
        y, (h, c) = self.deep(x)
        stated, (h2, c2) = self.stated(steps_first, (hidden, cell))
        gru, g = self.gru(x[:, :12])
        plain, p = self.plain_gru(steps_first, hidden[..., :9])
        rnn, r = self.rnn(steps_first)
        tanh, t = self.tanh(x[:, :12])
        single, _ = self.gru(x[0])  # without a batch
        return y, h, c, stated, h2, c2, gru, g, plain, p, rnn, r, tanh, t, single


class _Kinds(nn.Module):
    """Every kind of layer, as people build and call them; what is returned of each is checked."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, 2, dropout=0.2, batch_first=True)
        self.both = nn.LSTM(4, 3, bidirectional=True, bias=False)
        self.gru = nn.GRU(4, 3, 2, dropout=0.5, bidirectional=True, batch_first=True)
        self.one = nn.GRU(4, 3)  # its last state is a view of a view
        self.rnn = nn.RNN(4, 5, bidirectional=True)
        self.relu = nn.RNN(4, 5, 2, nonlinearity="relu", dropout=0.1, batch_first=True)

    def forward(
        self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        begun = self.lstm(x, (hidden, cell))
        results = begun, self.lstm(x), self.both(x), self.gru(x), self.gru(x[0]), self.rnn(x[1])
        return tuple(
            tree_leaves((*results, self.one(x[0]), self.rnn(x), self.relu(x, hidden), self.relu(x)))
        )


@pytest.mark.parametrize(
    ("target", "steps"),
    [
        ("cpu", 2),
        pytest.param("cpu", 12, marks=pytest.mark.sweep),
        pytest.param("metal", 2, marks=pytest.mark.sweep),
    ],
)
def test_all_kinds_convert(target: str, steps: int, tmp_path: Path) -> None:
    """Layers, both ways, unbatched, with state and without, with a dropout that is off in eval."""
    torch.manual_seed(3)
    module = _Kinds().eval()
    inputs = torch.randn(2, steps, 4), torch.randn(2, 2, 5), torch.randn(2, 2, 5)
    bundle = convert(module, inputs, target=target, out=tmp_path / "made", measure_seconds=0)
    fresh = tuple(torch.randn_like(value) for value in inputs)
    assert_as_eager(bundle.folder, module, fresh, rtol=1e-4, atol=1e-5)


class _Listener(nn.Module):
    """A recurrent layer over a recording of any length, and the mean of what it says."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.mean = layer, nn.AdaptiveAvgPool1d(1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return y, self.mean(y.transpose(1, 2)), *tree_leaves(state)


_BOTH_WAYS: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "batch_first": True}
_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(6, 5, **_BOTH_WAYS),
    "gru": lambda: nn.GRU(6, 5, **_BOTH_WAYS),
    "rnn": lambda: nn.RNN(6, 5, **_BOTH_WAYS, bias=False),
    "projected": lambda: nn.LSTM(6, 5, proj_size=3, batch_first=True),
}


# Emulated loops take long to compile: two kinds run always on the CPU, the others in the sweep.
_ALWAYS = {("gru", "cpu"), ("projected", "cpu")}
_TARGETS = [
    pytest.param(kind, target, marks=[pytest.mark.sweep] * ((kind, target) not in _ALWAYS))
    for kind in _LAYERS
    for target in ("cpu", "metal")
]


@pytest.mark.parametrize(("kind", "target"), _TARGETS)
def test_any_length_and_batch_convert(kind: str, target: str, tmp_path: Path) -> None:
    """A speech model as it is exported first: eager's numbers for a step and for many."""
    torch.manual_seed(5)
    module = _Listener(_LAYERS[kind]()).eval()
    sizes = {0: torch.export.Dim("batch", min=1, max=4), 1: torch.export.Dim("time", min=1, max=90)}
    bundle = convert(
        module,
        (torch.randn(2, 9, 6),),
        target=target,
        dynamic_shapes=(sizes,),
        out=tmp_path / "made",
        measure_seconds=0,
    )
    calls = ((torch.randn(*size, 6),) for size in ((1, 1), (3, 41), (4, 90)))
    assert_as_eager(bundle.folder, module, *calls, rtol=1e-4, atol=1e-5)


def test_dropout_that_is_on_is_refused(tmp_path: Path) -> None:
    """A layer in training mode with dropout between its layers; without it converts."""
    layer = nn.LSTM(4, 5, 2, dropout=0.2).train()
    with pytest.raises(ExportError, match=r"random numbers are drawn by .*aten\.lstm\.input.*eval"):
        convert(layer, (torch.randn(3, 2, 4),), out=tmp_path / "made")
    prepare_module("main", Program(nn.LSTM(4, 5, 2).train(), (torch.randn(3, 2, 4),)))


def _export(
    module: nn.Module, *inputs: torch.Tensor, shapes: Any = None
) -> torch.export.ExportedProgram:
    with torch.no_grad():
        exported = torch.export.export(module.eval(), inputs, strict=False, dynamic_shapes=shapes)
        return exported.run_decompositions({})


def _check(
    module: nn.Module, *inputs: torch.Tensor, program: torch.export.ExportedProgram | None = None
) -> None:
    program = program or _export(module, *inputs)
    with torch.no_grad():
        expected = module(*inputs)
    results = run_piece(program, inputs)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=1e-5, atol=1e-5)


def _calls(program: torch.export.ExportedProgram) -> int:
    return sum(node.target is _KERNEL for node in program.graph.nodes)


def test_a_few_steps_are_written_out() -> None:
    """Two layers of one step with state, and four steps in both directions: eager's numbers."""
    torch.manual_seed(4)
    inputs = (torch.tensor([[3], [9]]), torch.randn(2, 2, 8), torch.randn(2, 2, 8))
    inputs = (*inputs, torch.randn(4, 2, 16))
    module = _Short().eval()
    program = _export(module, *inputs)
    assert _calls(ExpandRecurrentLayers()(program)[0]) == 0
    _check(module, *inputs, program=program)
    assert torch._C._get_mkldnn_enabled()


def test_sequences_are_a_kernels() -> None:
    """LSTM, GRU and plain layers over 12 and 40 steps, both ways, with and without state."""
    torch.manual_seed(5)
    module = _Long().eval()
    inputs = (torch.randn(3, 40, 6), torch.randn(1, 3, 16), torch.randn(1, 3, 16))
    program = _export(module, *inputs)
    assert _calls(ExpandRecurrentLayers()(program)[0]) == 4 + 1 + 4 + 1 + 2 + 1 + 4
    _check(module, *inputs, program=program)


@pytest.mark.sweep
def test_a_thousand_steps_compile_as_one() -> None:
    """The kernel's code does not grow with the length, and errors do not add up over it."""
    torch.manual_seed(6)
    module = nn.LSTM(4, 4).eval()

    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (self.layer(x)[0],)

    _check(Output(), torch.randn(1000, 1, 4))


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        pytest.param(
            nn.LSTM(4, 4, 2, proj_size=2, bidirectional=True),
            torch.float32,
            marks=pytest.mark.sweep,  # one way, it converts for any length above
        ),
        (nn.GRU(4, 4).double(), torch.float64),
    ],
)
def test_what_has_no_kernel_is_a_loop(layer: nn.Module, dtype: torch.dtype) -> None:
    """Written out, a hundred steps with projections or in float64 would compile for hours."""

    class Results(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(tree_leaves(self.layer(x)))

    x = torch.randn(100, 2, 4, dtype=dtype)
    program = _export(Results(), x)
    assert len(run_passes(program, target="cpu")[0].graph.nodes) < 100
    _check(Results(), x, program=program)


_EAGER_LAYERS = st.fixed_dictionaries({
    "kind": st.sampled_from((nn.LSTM, nn.GRU, nn.RNN)),
    "num_layers": st.integers(1, 2),
    "bidirectional": st.booleans(),
    "batch_first": st.booleans(),
    "bias": st.booleans(),
    "proj_size": st.sampled_from((0, 0, 3)),
    "nonlinearity": st.sampled_from(("tanh", "relu")),
    "steps": st.sampled_from((1, 3, 9)),
    "stated": st.booleans(),
})  # fmt: skip


_BATCH_FIRST = {
    "kind": nn.LSTM, "num_layers": 1, "bidirectional": True, "batch_first": True, "bias": True,
    "proj_size": 0, "nonlinearity": "tanh", "steps": 9, "stated": True,
}  # fmt: skip


@settings(max_examples=12, deadline=None, derandomize=True)
@example(how=_BATCH_FIRST)
@given(how=_EAGER_LAYERS)
def test_the_pass_alone_keeps_what_eager_computes(how: dict[str, Any]) -> None:
    """Of every argument of a layer. torch itself has a kernel of LSTMs alone to run longer ones."""
    how = dict(how)
    kind, steps, stated = how.pop("kind"), how.pop("steps"), how.pop("stated")
    relu, projected = how.pop("nonlinearity"), how.pop("proj_size")
    own = {nn.LSTM: {"proj_size": projected}, nn.GRU: {}, nn.RNN: {"nonlinearity": relu}}
    layer = kind(5, 4, **how, **own[kind]).eval()
    torch.manual_seed(steps)
    x, count = torch.randn(steps, 3, 5), layer.num_layers * (1 + layer.bidirectional)
    hidden, cell = torch.randn(count, 3, layer.proj_size or 4), torch.randn(count, 3, 4)
    state = (hidden, cell) if kind is nn.LSTM else hidden
    inputs = (x.transpose(0, 1) if layer.batch_first else x, *([state] if stated else []))
    short = kind is nn.LSTM or steps <= 3
    with torch.no_grad():
        program = torch.export.export(layer, inputs, strict=False)
        made, _ = run_passes(
            program, ["expand_recurrent_layers" if short else "loop_over_recurrent_layers"]
        )
        pairs = zip(
            tree_leaves(made.module(check_guards=False)(*inputs)),
            tree_leaves(layer(*inputs)),
            strict=True,
        )
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
