"""Cases of recurrent layers: one layer in one direction."""

from __future__ import annotations

from typing import Any

import torch
from case import Table, floats, short

TABLE = Table()
_OPERATOR = "mkldnn_rnn_layer"
_KINDS = {
    "relu": (0, 1, torch.rnn_relu),
    "tanh": (1, 1, torch.rnn_tanh),
    "LSTM": (2, 4, torch.lstm),
    "GRU": (3, 3, torch.gru),
}


def _eager(**given: Any) -> tuple[torch.Tensor, ...]:
    """Torch's own layer of that mode; the sequence is turned round where it runs backwards."""
    _, _, function = list(_KINDS.values())[given["mode"]]
    state = (given["hx_"], given["cx_"]) if function is torch.lstm else given["hx_"]
    biased = bool(given["has_biases"])
    weights = [given[f"weight{i}"] for i in range(4 if biased else 2)]
    turned = given["input"].flip(0) if given["reverse"] else given["input"]
    output, hidden, *memory = function(turned, state, weights, biased, 1, 0.0, False, False, False)
    output = output.flip(0) if given["reverse"] else output
    return (output, hidden, *(memory or [given["cx_"]]))


def _arguments(
    kind: str,
    *,
    steps: int = 4,
    batch: int = 2,
    features: int = 5,
    hidden: int = 7,
    dtype: torch.dtype = torch.float32,
    scale: float = 1,
    **how: int,
) -> dict[str, Any]:
    mode, gates, _ = _KINDS[kind]
    width = gates * hidden
    return {
        "input": floats(steps, batch, features, dtype=dtype) * scale,
        "weight0": floats(width, features, dtype=dtype) / 2,
        "weight1": floats(width, hidden, dtype=dtype) / 2,
        "weight2": floats(width, dtype=dtype, seed=1),
        "weight3": floats(width, dtype=dtype, seed=2),
        "hx_": floats(1, batch, hidden, dtype=dtype, seed=3),
        "cx_": floats(1, batch, hidden, dtype=dtype, seed=4),
        "reverse": 0, "batch_sizes": [], "mode": mode, "hidden_size": hidden, "num_layers": 1,
        "has_biases": 1, "bidirectional": 0, "batch_first": 0, "train": 0,
    } | how  # fmt: skip


for kind in _KINDS:
    for name, choices in {
        "forwards": {},
        "backwards": {"reverse": 1},
        "without biases": {"has_biases": 0},
        "one step of one": {"steps": 1, "batch": 1, "hidden": 8},
        "a hundred steps": {"steps": 100, "hidden": 19},
        "a large batch": {"batch": 40, "hidden": 16, "reverse": 1},
        "saturated gates": {"scale": 200},
    }.items():
        if (kind, name) == ("relu", "a hundred steps"):
            continue  # random weights make it grow beyond all bounds
        TABLE.add(_OPERATOR, f"{kind}, {name}", _arguments(kind, **choices), _eager)  # type: ignore[arg-type]
    for dtype in (torch.float16, torch.bfloat16):
        # Eager rounds each step's state, the kernel its result alone.
        TABLE.add(
            _OPERATOR, f"{kind}, {short(dtype)}", _arguments(kind, dtype=dtype), _eager,
            tolerance=8e-2 if dtype is torch.bfloat16 else 1e-2,
        )  # fmt: skip

_LSTM = _arguments("LSTM")
for fact, changed in (
    ("mode 4 is not a recurrent layer", {"mode": 4}),
    ("one layer in one direction", {"bidirectional": 1}),
    ("one layer in one direction", {"num_layers": 2}),
    ("one layer in one direction", {"batch_sizes": [2, 1]}),
    ("the input must be float32", {"input": floats(4, 2, 5).double()}),
    ("there are no features", {"input": floats(4, 2, 0)}),
    ("do not fit", {"weight0": floats(21, 5)}),
    ("do not fit", {"hidden_size": 6}),
    ("each bias must be a list of 28 elements", {"weight3": floats(27)}),
    ("does not fit", {"cx_": floats(1, 3, 7)}),
):
    TABLE.refuse(_OPERATOR, fact, **(_LSTM | changed))
