"""Golden cases made of the inputs that a program's owner gave.

The first case is those inputs. Where sizes are dynamic, inputs of the lowest, the highest and odd
sizes follow. Their floats and integers are drawn with replacement from the given tensor's own
elements, so that every value is one that the program is known to take; their booleans are the given
ones, repeated or cut along each axis, so that masks keep their form.

Where a program keeps state, each of these is the first of several calls in a row; the later ones'
inputs are drawn in the same way.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from transforms.golden import GoldenCase, check_outputs, telling_sizes
from zoo.errors import ExportError
from zoo.sources.random_weights import one_thread
from zoo.spec import Dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from transforms.signature import Signature

__all__ = ["example_goldens", "redrawn", "resized"]


def example_goldens(
    place: str,
    signature: Signature,
    example: Mapping[str, torch.Tensor],
    eager: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    *,
    calls: int = 1,
    restore: Callable[[], None] = lambda: None,
) -> list[GoldenCase]:
    """Run eager on the inputs given, and on some of every telling size.

    Args:
        place: the program, in errors.
        signature: how it is called.
        example: a tensor for each input.
        eager: the program itself, by names.
        calls: how many follow each other from the first state on; more than one only with state.
        restore: brings that state back.

    Raises:
        ExportError: eager fails, naming the sizes; or its outputs could prove nothing.
    """
    own = {
        size: example[spec.name].shape[axis]
        for spec in signature.inputs
        for axis, size in enumerate(spec.shape)
        if isinstance(size, str)
    }
    ranges = {n: _dimension(*bounds) for n, bounds in signature.dimensions.items()}
    others = [s for s in telling_sizes(ranges) if s != own]
    cases = list[GoldenCase]()
    for number, sizes in enumerate([own, *others], start=-1):
        restore()
        for call in range(calls):
            inputs = {
                spec.name: (resized if call == 0 else redrawn)(
                    example[spec.name],
                    [sizes[s] if isinstance(s, str) else s for s in spec.shape],
                    seed=f"{spec.name}:{number}" + (f":{call}" if call else ""),
                )
                for spec in signature.inputs
            }
            nth = f", in call {call + 1} of {calls} after a reset" if calls > 1 else ""
            cases.append(_case(place, sizes, inputs, eager, nth))
    restore()
    check_outputs(place, cases)
    return cases


def _dimension(low: int, high: int, step: int) -> Dimension:
    return Dimension(low=low, high=high, multiple_of=step)


def _case(
    place: str,
    sizes: dict[str, int],
    inputs: dict[str, torch.Tensor],
    eager: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]],
    nth: str,
) -> GoldenCase:
    try:
        with torch.no_grad(), one_thread():
            results = eager({name: tensor.clone() for name, tensor in inputs.items()})
        outputs = {name: value.clone() for name, value in results.items()}
    except Exception as error:
        raise ExportError(
            place,
            f"eager PyTorch fails at {sizes or 'the given inputs'}{nth}: {error}",
            "Narrow the ranges, or give inputs whose values fit every size"
            + (", or fewer `calls`" if nth else ""),
        ) from error
    return GoldenCase(sizes, inputs, outputs)


def resized(example: torch.Tensor, shape: Sequence[int], *, seed: str) -> torch.Tensor:
    """A tensor of another shape that is as the example is; see the module for how.

    Args:
        example: as many axes as `shape`.
        shape: the sizes wanted.
        seed: the same gives the same tensor.
    """
    if list(example.shape) == list(shape):
        return example.detach().clone()
    return redrawn(example, shape, seed=seed)


def redrawn(example: torch.Tensor, shape: Sequence[int], *, seed: str) -> torch.Tensor:
    """As `resized`, but of the same shape too: with other values, drawn from the example's."""
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype)
    if example.dtype is torch.bool:
        for axis, size in enumerate(shape):
            example = example.index_select(axis, torch.arange(size) % example.shape[axis])
        return example
    digest = hashlib.sha256(seed.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    drawn = torch.randint(example.numel(), tuple(shape), generator=generator)
    return example.detach().reshape(-1)[drawn]
