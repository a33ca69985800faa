"""Export: dynamic dimensions stay dynamic, results are picked by name, and faults are explained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transforms.export import export_program
from transforms.golden import make_goldens
from zoo.errors import ExportError
from zoo.spec import Dimension, InputSpec, ProgramSpec


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


def test_every_size_in_range_runs_the_same_program() -> None:
    """One exported program serves low, high and odd sizes and equals eager on each."""
    model, spec = TwoHeads().eval(), _spec()
    cases = make_goldens(model, spec)
    exported = export_program(model, spec, cases[0].inputs)
    assert {tuple(c.dimensions.values()) for c in cases} == {
        (3, 21), (1, 2), (6, 40), (1, 40), (6, 2),
    }  # fmt: skip
    for case in cases:
        torch.testing.assert_close(exported.program.module()(*case.inputs.values()), case.outputs)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [((), ("logits", "hidden")), (("hidden",), ("hidden",)), (("hidden", "logits"),) * 2],
)
def test_outputs_are_picked_in_the_order_asked_for(
    outputs: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """The spec's outputs select and order the fields; none means all of them."""
    model, spec = TwoHeads().eval(), _spec(outputs=outputs)
    exported = export_program(model, spec, make_goldens(model, spec)[0].inputs)
    assert exported.output_names == expected
    assert exported.input_names == ("features", "scale")


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
    exported = export_program(model, spec, make_goldens(model, spec)[0].inputs)
    assert set(exported.program.state_dict) == {"model.weight", "model.bias"}


def test_unknown_part_names_those_that_exist() -> None:
    """A wrong `part` says which parts there are."""
    spec = ProgramSpec(part="decoder", inputs=(InputSpec(name="input", shape=(3, 8)),))
    with pytest.raises(ExportError, match=r"no part 'decoder'.*body, head"):
        make_goldens(TwoHeads().eval(), spec)


def test_unknown_output_names_those_that_exist() -> None:
    """A wrong output name says which the result has."""
    with pytest.raises(ExportError, match=r"no 'loss'.*logits, hidden"):
        make_goldens(TwoHeads().eval(), _spec(outputs=("loss",)))


def test_specialised_dimension_is_an_error_with_advice() -> None:
    """A model that fixes a dimension is refused, with what to change in the manifest."""

    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(5, 2) + 1

    spec = ProgramSpec(
        inputs=(InputSpec(name="x", shape=("n", 2)),), dimensions={"n": Dimension(low=2, high=9)}
    )
    with pytest.raises(ExportError, match="Narrow the range"):
        export_program(Fixed().eval(), spec, {"x": torch.ones(5, 2)})


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
