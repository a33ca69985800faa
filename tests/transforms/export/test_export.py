"""Export: dynamic dimensions stay dynamic, results are picked by name, and faults are explained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.pieces import Apply, assert_as_eager
from transforms import convert
from transforms.export.trace import dynamic_shapes, trace
from transforms.goldens.cases import make_goldens
from transforms.graph.call_signature import output_names
from transforms.graph.callable import eager_of
from zoo.errors import ExportError
from zoo.spec import Dimension, InputSpec, ProgramSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch.export import ExportedProgram


class TwoHeads(nn.Module):
    """Returns a dictionary, as transformers' models do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(
        self, features: torch.Tensor, scale: torch.Tensor, *, doubled: bool = False
    ) -> dict[str, torch.Tensor]:
        """Two results by name."""
        hidden = self.body(features) * scale * (2 if doubled else 1)
        return {"logits": self.head(hidden), "hidden": hidden}


def _spec(**changes: object) -> ProgramSpec:
    fields: dict[str, object] = {
        "inputs": (
            InputSpec(name="features", shape=("batch", "frames", 4)),
            InputSpec(name="scale", shape=(1,)),
        ),
        "dimensions": {"batch": Dimension(low=1, high=6), "frames": Dimension(low=2, high=40)},
    }
    return ProgramSpec.model_validate(fields | changes)


def _exported(
    model: nn.Module, spec: ProgramSpec, example: Mapping[str, torch.Tensor]
) -> ExportedProgram:
    module = eager_of(model, spec).module
    return trace("program main", module, tuple(example.values()), shapes=(dynamic_shapes(spec),))


def test_every_size_in_range_runs_the_same_program() -> None:
    """One exported program serves low, high and odd sizes and equals eager on each."""
    model, spec = TwoHeads().eval(), _spec()
    cases = make_goldens(model, spec)
    exported = _exported(model, spec, cases[0].inputs)
    assert {tuple(c.dimensions.values()) for c in cases} == {
        (3, 21), (1, 2), (6, 40), (1, 40), (6, 2),
    }  # fmt: skip
    for case in cases:
        torch.testing.assert_close(exported.module()(*case.inputs.values()), case.outputs)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [((), ("logits", "hidden")), (("hidden",), ("hidden",)), (("hidden", "logits"),) * 2],
)
def test_outputs_are_picked_in_the_order_given(
    outputs: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """The spec's outputs select and order the fields; none means all of them."""
    model, spec = TwoHeads().eval(), _spec(outputs=outputs)
    exported = _exported(model, spec, make_goldens(model, spec)[0].inputs)
    assert output_names(exported) == expected


def test_fixed_arguments_reach_forward() -> None:
    """`arguments` are keyword constants of the exported call."""
    model = TwoHeads().eval()
    once = make_goldens(model, _spec(outputs=("hidden",)))[0]
    twice = make_goldens(model, _spec(outputs=("hidden",), arguments={"doubled": True}))[0]
    torch.testing.assert_close(twice.outputs["hidden"], once.outputs["hidden"] * 2)


def test_a_part_is_exported_alone() -> None:
    """`part` names the submodule; nothing else of the model is in the program."""
    spec = ProgramSpec(part="head", inputs=(InputSpec(name="input", shape=(3, 8)),))
    model = TwoHeads().eval()
    exported = _exported(model, spec, make_goldens(model, spec)[0].inputs)
    assert set(exported.state_dict) == {"model.weight", "model.bias"}


def test_unknown_part_names_those_that_exist() -> None:
    """A wrong `part` says which parts there are."""
    spec = ProgramSpec(part="decoder", inputs=(InputSpec(name="input", shape=(3, 8)),))
    with pytest.raises(ExportError, match=r"no part 'decoder'.*body, head"):
        make_goldens(TwoHeads().eval(), spec)


def test_unknown_inputs_name_those_that_forward_takes() -> None:
    """Also one that is missing; nothing was called yet."""
    image = InputSpec(name="image", shape=(3, 4))
    scale = InputSpec(name="scale", shape=(1,))
    for inputs, fault in (((image, scale), "unexpected keyword"), ((scale,), "missing a required")):
        spec = ProgramSpec(inputs=inputs)
        with pytest.raises(ExportError, match=rf"{fault}.*forward takes features, scale, doubled"):
            make_goldens(TwoHeads().eval(), spec)


def test_unknown_output_names_those_that_exist() -> None:
    """A wrong output name says which the result has."""
    with pytest.raises(ExportError, match=r"no 'loss'.*logits, hidden"):
        make_goldens(TwoHeads().eval(), _spec(outputs=("loss",)))


class _Returns(nn.Module):
    """Returns what `shape` makes of its input."""

    def __init__(self, shape: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self._shape = shape

    def forward(self, x: torch.Tensor) -> Any:
        return self._shape(x)


_NAMED: dict[str, Callable[[torch.Tensor], Any]] = {
    "one tensor": lambda x: x + 1,
    "too few": lambda x: (x + 1,),
    "optional": lambda x: (x + 1, None),
    "nested": lambda x: (x + 1, (x + 2, x + 3)),
    "nested by key": lambda x: {"logits": x + 1, "hidden": (x + 2, x + 3)},
}


def _one_input(**fields: Any) -> ProgramSpec:
    return ProgramSpec(inputs=(InputSpec(name="x", shape=(2, 3)),), **fields)


@pytest.mark.parametrize("result", _NAMED)
def test_outputs_that_are_no_tensors_are_refused_by_name(result: str) -> None:
    """Each name under `outputs` is that of a tensor; none is left out in silence."""
    spec = _one_input(outputs=("logits", "hidden"))
    with pytest.raises(ExportError, match=r"hidden.*`outputs`"):
        _exported(_Returns(_NAMED[result]).eval(), spec, {"x": torch.ones(2, 3)})


def test_nested_results_without_a_choice_are_refused() -> None:
    """An LSTM returns its states in a tuple of their own: the error has position and remedy."""
    spec = ProgramSpec(inputs=(InputSpec(name="input", shape=(2, 5, 3)),))
    with pytest.raises(ExportError, match=r"result 1 is a tuple.*`outputs`"):
        make_goldens(nn.LSTM(3, 4).eval(), spec)
    with pytest.raises(ExportError, match=r"result 1 is a tuple.*`outputs`"):
        _exported(_Returns(_NAMED["nested"]).eval(), _one_input(), {"x": torch.ones(2, 3)})


def test_results_before_a_nested_one_can_be_chosen() -> None:
    """`outputs: [sequence]` keeps the first result alone."""
    spec, x = _one_input(outputs=("sequence",)), torch.ones(2, 3)
    exported = _exported(_Returns(_NAMED["nested"]).eval(), spec, {"x": x})
    assert output_names(exported) == ("sequence",)
    torch.testing.assert_close(exported.module()(x), {"sequence": x + 1})


def test_what_is_no_tensor_is_left_out_where_nothing_is_chosen() -> None:
    """All tensors returned, named by position; a loss that is None at inference is left out."""
    x = torch.ones(2, 3)
    model = _Returns(lambda x: (x + 1, None, x + 2)).eval()
    exported = _exported(model, _one_input(), {"x": x})
    assert output_names(exported) == ("output_0", "output_2")
    with pytest.raises(ExportError, match="returns no tensor"):
        _exported(_Returns(lambda _: (None,)).eval(), _one_input(), {"x": x})


def test_specialised_dimension_is_an_error_with_advice() -> None:
    """A model that fixes a dimension is refused, with what to change in the manifest."""

    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(5, 2) + 1

    spec = ProgramSpec(
        inputs=(InputSpec(name="x", shape=("n", 2)),), dimensions={"n": Dimension(low=2, high=9)}
    )
    with pytest.raises(ExportError, match="the model fixes it: leave that axis out"):
        _exported(Fixed().eval(), spec, {"x": torch.ones(5, 2)})


class _Part(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the first part of a signal, by int()."""
        return x[:, : int(x.shape[1] * 0.7)]


class _Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale by the root of a size."""
        return x * math.sqrt(x.shape[1])


class _Blocks(nn.Module):
    def __init__(self, *, padded: bool) -> None:
        super().__init__()
        self.padded = padded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Cut into blocks of five columns, the last of them filled up."""
        width = x.shape[1]
        if width % 5:
            x = nn.functional.pad(x, (0, -width % 5))
        x = x.reshape(x.shape[0], x.shape[1] // 5, 5)
        if self.padded:
            x = nn.functional.pad(x, (0, 0, 1, 1)).flatten(1)[:, :width]
        return x


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        (_Part(), r"write math\.floor"),
        (_Scaled(), r"n\*\*0\.5"),
        (_Blocks(padded=True), r"fits the blocks .* Use n \* Dim"),
        (_Blocks(padded=False), "no multiple of 5; try an example of such a size"),
    ],
)
def test_python_that_fixes_a_size_is_named(module: nn.Module, advice: str, tmp_path: Path) -> None:
    """The error says what to write or to give in place of what fixes a size."""
    sizes = {"x": {1: Dim("n", min=20, max=90)}}
    with pytest.raises(ExportError, match=advice):
        convert(module, (torch.randn(2, 52),), dynamic_shapes=sizes, out=tmp_path / "out")


def _sizes_in_tensors(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    span, table = torch.tensor(min(x.shape[0], 9)), torch.arange(40.0)
    near = table[20 - span : span + 20].unflatten(0, (2, -1))  # as DeBERTa slices
    return near, x.clamp(0, span * 2 - 1), x[: span - 1]


def test_sizes_are_read_out_of_tensors(tmp_path: Path) -> None:
    """A size in a tensor is a size where it is read out again."""
    module, out, sizes = Apply(_sizes_in_tensors), tmp_path / "out", ({0: Dim("n", min=3, max=20)},)
    convert(module, (torch.randn(4, 3),), dynamic_shapes=sizes, out=out, measure_seconds=0)
    assert_as_eager(out, module, *((torch.randn(n, 3) * 20,) for n in (3, 9, 10, 20)))


def test_dynamic_shapes_of_another_structure_are_refused_with_the_right_one(tmp_path: Path) -> None:
    """Not with advice on the model."""
    sizes = (({0: Dim("n", min=2, max=9)},),)
    with pytest.raises(ExportError, match="Give dynamic_shapes the structure of the inputs"):
        convert(_Part(), (torch.ones(2, 50),), dynamic_shapes=sizes, out=tmp_path / "out")


def test_eager_failure_names_the_sizes() -> None:
    """If eager itself cannot run a case, the error says at which sizes."""

    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 4)

    spec = ProgramSpec(
        inputs=(InputSpec(name="x", shape=("n", 2)),), dimensions={"n": Dimension(low=2, high=8)}
    )
    with pytest.raises(ExportError, match=r"eager PyTorch fails at \{'n': 5\}"):
        make_goldens(Picky().eval(), spec)


class _Transposing(nn.Module):
    """Writes into a result of `einsum`, which is a view though its schema does not say so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What is written shows in its operand."""
        y = x.exp()
        torch.einsum("ij->ji", y)[0].add_(1)
        return y * 2


@pytest.mark.parametrize(
    ("module", "example", "other"),
    [
        pytest.param(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Upsample(scale_factor=2)),
            (3, 3, 10, 12), (5, 3, 10, 12), id="resized",
        ),
        pytest.param(
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.LSTM(8, 8)),
            (9, 1, 8), (14, 1, 8), id="recurrent",
        ),
    ],
)  # fmt: skip
def test_sizes_stay_dynamic_where_something_is_written(
    module: nn.Module, example: tuple[int, ...], other: tuple[int, ...], tmp_path: Path
) -> None:
    """What runs behind a ReLU in place is not written out for the example's size."""
    made = convert(
        module.eval(), (torch.randn(example),), dynamic_shapes=({0: Dim("n", min=2, max=20)},),
        out=tmp_path / "out", measure_seconds=0,
    )  # fmt: skip
    whole, close = (torch.randn(other),), {"atol": 1e-5, "rtol": 1e-5}
    assert_as_eager(made.folder, module, whole, **close)


class _Hiding(nn.Module):
    """Hides in place, by a dropout that is off, and by torch's unsafe halves."""

    def __init__(self, through: str) -> None:
        super().__init__()
        self.dropout, self.through = nn.Dropout(0.1), through

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """What is hidden is a value of the result, too."""
        y = x * 2
        if self.through == "dropout":
            self.dropout(y).masked_fill_(hidden, 0.0)
        else:
            y.unsafe_chunk(2, 1)[0].masked_fill_(hidden[:, :2], 0.0)
        return y + 1


@pytest.mark.parametrize("through", ["dropout", "halves"])
def test_what_a_condition_writes_is_kept(through: str, tmp_path: Path) -> None:
    """The example hides nothing, so that its goldens would not show what was lost."""
    module, x = _Hiding(through).eval(), torch.randn(3, 4)
    given = (x, torch.zeros(3, 4, dtype=torch.bool))
    made = convert(module, given, out=tmp_path / "out", measure_seconds=0)
    hidden = torch.arange(12).reshape(3, 4) % 3 == 0
    assert_as_eager(made.folder, module, (x, hidden), rtol=1e-5, atol=1e-6)


def test_what_is_written_through_a_composite_view_is_kept() -> None:
    """Torch's own decomposition would lose it."""
    module, x = _Transposing().eval(), torch.randn(2, 3)
    program = trace("program main", module, (x,))
    torch.testing.assert_close(program.module()(x), module(x))
