"""What we read out of operators' schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from transforms.graph.schemas import (
    bound_arguments,
    has_effect,
    is_functional,
    is_quantisation,
    is_random,
    underlying,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

aten = torch.ops.aten


def _call(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A call on placeholders, the first of which is a 3 x 3 matrix."""
    graph = torch.fx.Graph()
    matrix = graph.placeholder("matrix")
    matrix.meta["val"] = torch.empty(3, 3)
    return graph.call_function(target, tuple(matrix if a == "x" else a for a in args), kwargs)


def test_arguments_are_bound_by_name_with_defaults() -> None:
    """Positional, keyword and left-out arguments end up in one mapping."""
    node = _call(aten.add.Tensor, "x", 2, alpha=3)
    assert bound_arguments(node) == {"self": node.args[0], "other": 2, "alpha": 3}
    assert bound_arguments(_call(aten.add.Tensor, "x", 2))["alpha"] == 1


def _recurrent(target: Any, weights: int, states: int, dropout: float, *, train: bool) -> Any:
    """Two layers of one cell, between which its dropout is; positive, so that ReLU keeps all."""
    state = [torch.zeros(2, 1, 3)] * states
    layers = [torch.rand(weights * 3, 3), torch.rand(weights * 3, 3)] * 2
    hidden = state if states > 1 else state[0]
    flags = (layers, False, 2, dropout, train, False)
    if target._overloadname == "data":
        return target, torch.rand(4, 3), torch.ones(4, dtype=torch.int64), hidden, *flags
    return target, torch.rand(4, 1, 3), hidden, *flags, False


def _switched() -> Iterator[tuple[Any, ...]]:
    """Calls of operators that a switch makes random, and which of these draw."""
    x = torch.randn(1, 2, 64, 8)
    for dropout in (
        aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout,
        aten.native_dropout,
    ):  # fmt: skip
        for probability, train in ((0.5, True), (0.5, False), (0.0, True)):
            yield probability > 0 and train, dropout.default, x, probability, train
    yield True, aten.native_dropout.default, x, 0.5, None
    for target in (aten.rrelu_with_noise.default, aten.rrelu_with_noise_functional.default):
        for train in (True, False):
            yield train, target, x, torch.zeros_like(x), 0.1, 0.4, train
            yield train, aten.rrelu.default, x, 0.1, 0.4, train
    for target, weights, states in (
        (aten.lstm.input, 4, 2), (aten.lstm.data, 4, 2), (aten.gru.input, 3, 1),
        (aten.gru.data, 3, 1), (aten.rnn_tanh.input, 1, 1), (aten.rnn_tanh.data, 1, 1),
        (aten.rnn_relu.input, 1, 1), (aten.rnn_relu.data, 1, 1),
    ):  # fmt: skip
        for probability, train in ((0.5, True), (0.5, False), (0.0, True)):
            drawn = probability > 0 and train
            yield drawn, *_recurrent(target, weights, states, probability, train=train)
    for probability in (0.0, 0.5):
        drawn = probability > 0
        yield drawn, aten.scaled_dot_product_attention.default, x, x, x, None, probability
        yield drawn, aten._scaled_dot_product_attention_math.default, x, x, x, None, probability


def _draws(target: Any, *args: Any) -> bool:
    """Whether eager PyTorch gives other numbers with another seed."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        results = target(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
        found.append(torch.cat([r.flatten() for r in tree_leaves(results)]))
    return not torch.equal(*found)


@pytest.mark.parametrize("call", list(_switched()), ids=lambda call: f"{call[1]}-{call[0]}")
def test_random_operators(call: tuple[Any, ...]) -> None:
    """An operator that may draw numbers is random only where its arguments make it."""
    random, target, *args = call
    node = _call(target, *tree_map(lambda a: "x" if isinstance(a, torch.Tensor) else a, args))
    assert _draws(target, *args) == random
    assert is_random(node) == random
    assert random or target is aten.rrelu_with_noise.default or is_functional(node)
    assert not (random and is_functional(node))


def test_memory_that_is_not_initialised_is_random() -> None:
    """Two calls need not find the same there."""
    node = _call(aten.empty.memory_format, [3])
    assert is_random(node)
    assert not is_functional(node)
    assert not is_random(_call(aten.exp.default, "x"))


# What torch tags nondeterministic_seeded: what draws whenever it is called, and the rest by the
# arguments that must all be on.
ALWAYS = """
    _fused_dropout _nested_tensor_softmax_with_shape _sample_dirichlet _standard_gamma bernoulli
    binomial cauchy exponential geometric log_normal multinomial normal normal_functional poisson
    rand rand_like randint randint_like randn randn_like random randperm uniform prims::normal
    prims::uniform rngprims::philox_rand
"""
SWITCHED = {
    "p train": """
        dropout feature_dropout alpha_dropout feature_alpha_dropout native_dropout
    """,
    "training": "rrelu rrelu_with_noise rrelu_with_noise_functional",
    "dropout train": """
        lstm gru rnn_tanh rnn_relu _lstm_mps _cudnn_rnn miopen_rnn _cudnn_init_dropout_state
    """,
    "dropout_p": """
        scaled_dot_product_attention _scaled_dot_product_attention_math
        _scaled_dot_product_attention_math_for_mps _scaled_dot_product_cudnn_attention
        _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
        _scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_fused_attention_overrideable _triton_scaled_dot_attention
        _cudnn_attention_backward _cudnn_attention_forward _efficient_attention_forward
        _flash_attention_forward
        _flash_attention_forward_no_dropout_inplace _fused_sdp_choice _fill_mem_eff_dropout_mask
    """,
}


def test_every_random_operator_of_torch_is_known() -> None:
    """A torch that tags another one fails here: is it random always, or by which switch?"""
    switches = {name: keys.split() for keys, names in SWITCHED.items() for name in names.split()}
    known = switches | {name: [] for name in ALWAYS.split()}
    seen = set()
    for schema in torch._C._jit_get_all_schemas():
        space, name = schema.name.split("::")
        if space not in {"aten", "prims", "rngprims"} or name.startswith("inductor_"):
            continue  # Inductor's own are there once it is imported, and in no exported program
        packet = getattr(getattr(torch.ops, space), name)
        target = getattr(packet, schema.overload_name or "default", None)
        if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
            continue
        name = schema.name.removeprefix("aten::").removesuffix("_")
        seen.add(name)
        assert name in known, schema
        on = dict.fromkeys(known[name], 0.5)
        assert is_random(_call(target, **on)), schema
        for switch in on:
            assert not is_random(_call(target, **on | {switch: 0})), schema
    assert seen == known.keys()


@pytest.mark.parametrize(
    "node",
    [
        _call(aten.add_.Tensor, "x", 1),
        _call(aten._assert_async.msg, "x", "no"),
        _call(aten.batch_norm.default, "x", None, None, "x", "x", True, 0.1, 1e-5, False),
        _call(print, "x"),
    ],
)
def test_effects(node: torch.fx.Node) -> None:
    """Writes, assertions, training statistics and unknown Python are effects."""
    assert has_effect(node)


def test_quantisation_and_underlying() -> None:
    """Conversions are known by name; an operator of ATen is its own underlying one."""
    assert is_quantisation(aten.fake_quantize_per_tensor_affine.default)
    assert not is_quantisation(aten.add.Tensor)
    assert underlying(aten.add.Tensor) is aten.add.Tensor
    assert underlying(print) is print
