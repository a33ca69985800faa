"""Context managers that keep torch from assuming more of a dynamic size than a program needs."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from sympy.core.expr import Expr
from torch import Tensor
from torch._decomp import decompositions
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from zoo.errors import LoweringError

_LOUD = (
    "torch.fx.experimental.symbolic_shapes",
    "torch._subclasses.fake_tensor",
    "torch.export",  # logs everything that prevents a file from being read
    "torch._inductor.ir",  # warns of kernels without a C interface, which our own error lists
    "torch._inductor.scheduler",  # logs the whole of a kernel that cannot be generated
    "torch._inductor.utils",  # warns of a GPU's size
    "torch._inductor.codegen.mps",  # warns of float64, which our own error names
)
# Torch's decompositions of one recurrent layer in one direction, which unroll all steps.
_LAYERS = {n: getattr(decompositions, n) for n in ("one_layer_lstm", "one_layer_rnn")}
_REMEMBERED = property(lru_cache(maxsize=None)(Expr.is_number.fget))


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Compute on fake values; raise if that would assume something new of a dynamic size."""
    env = mode.shape_env
    guarded = nullcontext() if env is None else env.error_on_new_guards()
    with mode, torch.no_grad(), guarded, any_length(), torch_unheard():
        yield


def guards_not_noted(mode: FakeTensorMode) -> AbstractContextManager[object]:
    """Keep questions about a dynamic size from narrowing its range inside the block."""
    env = mode.shape_env
    return nullcontext() if env is None else env.suppress_guards()


def surely_equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether sizes are equal for all dynamic sizes; `==` would specialise them."""
    return len(one) == len(other) and statically_known_true(sym_eq(tuple(one), tuple(other)))


@contextmanager
def dynamic_sizes_kept(place: str, program: ExportedProgram) -> Iterator[None]:
    """Raise LoweringError after a block that has fixed an input's dynamic size.

    A question such as `a.shape == b.shape` silently fixes a symbol, and the generated code then
    works for the example's size only.
    """
    sizes = [
        (node.name, axis, size, str(size.node.expr))
        for node in program.graph.find_nodes(op="placeholder")
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ()))
        if isinstance(size, torch.SymInt)
    ]
    yield
    for name, axis, size, before in sizes:
        if str(size.node.expr) != before:
            raise LoweringError(
                place,
                f"axis {axis} of {name} is dynamic, and lowering took it for {size.node.expr}",
                "Give it a fixed size, and report it: it is a fault of Menagerie's or of torch's",
            )


def one_layer_by(function: Callable[..., Any]) -> AbstractContextManager[object]:
    """Make torch decompose recurrent layers by the given function inside the block."""
    written = {name: partial(function, layer) for name, layer in _LAYERS.items()}
    return patch.dict(vars(decompositions), written)


def _of_all_steps(_: object, x: Tensor, state: Any, *how: Any, **cell: Any) -> tuple[Tensor, Any]:  # noqa: ARG001
    hidden = state if isinstance(state, Tensor) else state[0]
    return x.new_empty(x.shape[0], *hidden.shape), state


@contextmanager
def any_length() -> Iterator[None]:
    """Trace Fourier transforms and recurrent layers without assumptions on their length.

    torch 2.13 follows the steps of the MKL kernel on fake values, where a reshape asks whether the
    number of frames divides the batch (`_exec_fft` of torch/_meta_registrations.py); without MKL it
    computes the shape alone. It unrolls an LSTM, GRU or RNN, which fixes the number of steps. It
    takes `(n / 4) % 1` for 0, since its remainders are of integers, and does not see that 4 divides
    `n + -n % 4`, which it sees of a quotient.
    """
    mkl = patch("torch.backends.mkl.is_available", return_value=False)
    remainder = patch.object(torch.SymFloat, "__mod__", lambda a, b: a - b * math.floor(a / b))
    of_negative = patch.object(torch.SymInt, "__mod__", _remainder)
    with mkl, one_layer_by(_of_all_steps), remainder, of_negative:
        yield


_OF_INTEGERS: Any = torch.SymInt.__mod__


def _remainder(a: torch.SymInt, b: Any) -> Any:
    if isinstance(b, int) and not statically_known_true(a >= 0):
        return a - b * (a // b)
    return _OF_INTEGERS(a, b)


@contextmanager
def torch_unheard() -> Iterator[None]:
    """Silence torch's logs and prints that our own errors replace, unless TORCH_LOGS is set."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    with ExitStack() as stack:
        for name in _LOUD:
            stack.enter_context(patch.object(logging.getLogger(name), "disabled", new=True))
        # It prints the graph of a failed export; the name `print` is looked up in its module first.
        stack.enter_context(patch("torch.export._trace.print", create=True))
        yield


_ASIDE = re.compile(  # of no use to a user who only converts a model
    r"report a|file an issue|https?:|/issues|INTERNAL|TORCH_LOGS|draft_export|^\w+ = |tlparse|"
    r"Suggested fixes|mark_dynamic|Dim\.(AUTO|DYNAMIC)|traceback:|program constant|our tracing|"
    r"lifted_tensor|erroneously tracing|custom (kernel|op)|While executing|following|num_users|"
    r"refer to|error above|new_dynamic_size|more times than|^File |^def |nn_module_stack"
)


def plain_words(text: str) -> str:
    """Return the first four sentences of torch's text, without those for its developers."""
    sentences = re.split(r"(?<=[.!:)])\s+|\s*\n\s*", text.strip())
    return " ".join([s for s in sentences if s and not _ASIDE.search(s)][:4])


@contextmanager
def switched_off(read: Callable[[], bool], write: Callable[[bool], object]) -> Iterator[None]:
    """Switch one of torch's settings off inside the block, then restore it."""
    before = read()
    write(False)
    try:
        yield
    finally:
        write(before)


def is_number_cached() -> AbstractContextManager[object]:
    """Make sympy evaluate `is_number` once per expression, as expressions never change."""
    return patch.object(Expr, "is_number", _REMEMBERED)
