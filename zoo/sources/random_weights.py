"""Seeded random weights that are worth proving a converter on.

Libraries initialise for the first step of training: heads at zero, normalisation at identity,
layer scales at 1e-6, small weights everywhere, and batch norm statistics that match nothing. In
evaluation such a model computes almost nothing: the logits of a fresh ViT are exactly 0, those of
a fresh MobileNetV3 are 1e-9, and those of a fresh Parakeet hardly depend on the audio, so that any
tolerance accepts any answer. Here constant parameters are redrawn, weak ones are strengthened, and
batch norm statistics are taken from the actual activations, so that every layer matters. Branches
that would drown the trunk to which they are added are weakened (`SmallBranches`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from zoo.errors import SourceError
from zoo.sources.context import first_line
from zoo.sources.steps import stepped
from zoo.spec import InputSpec, ModelSpec, ProgramSpec, SampleKind

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_BIAS_STD = 0.1
# Mean of batch norms' biases. At zero, a ReLU cuts half of its input, and each layer amplifies an
# error by 1.2; nearer to linear it does less (Yang et al. 2019, arXiv:1902.08129). Inception v3 in
# float32 at 128 by 128 has an SNR of 95 dB over float64 with 0.5, and of 114 dB with 1.
_OFFSET = 1.0
_SCALES = (0.5, 1.5)
_WEAK_GAIN = 0.5
_FAINTEST = 0.25  # bound of a channel's second moment over its layer's mean: at most twice the gain
_FEWEST = 2  # the fewest elements that can be called constant
SHARE = 0.15  # the largest deviation of a branch, relative to its trunk's
_SUMS = frozenset({
    torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__iadd__,
    torch.Tensor.__radd__,
})  # fmt: skip


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run torch with `count` threads inside the block.

    One thread is used if the last bits matter, because threads change the order of summation: the
    weights' bits are in the build key, and the golden outputs' bits in the release under this key.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def enliven(module: nn.Module, spec: ModelSpec, model: str) -> None:
    """Repair degenerate parameters in place, for the inputs of an entry; see `strengthen`.

    Batch norm statistics come from the inputs of the entry's programs. Raise SourceError if the
    module, which is float32 and in eval mode, cannot be called as the entry describes.
    """

    def run() -> None:
        for program in spec.programs:
            inputs = {i.name: _draw(i, program) for i in program.inputs}
            part = module.get_submodule(program.part)
            if fault := misfit(part.forward, [*inputs, *program.arguments]):
                raise TypeError(fault)
            part(**stepped(inputs, program.before), **program.arguments)

    try:
        strengthen(module, run)
    except Exception as error:  # any error of torch means that the entry does not fit
        fact = f"cannot be called as its entry says ({first_line(error)})"
        raise SourceError(model, fact, "Fix its programs' parts, inputs or arguments") from error


def strengthen(module: nn.Module, run: Callable[[], object]) -> None:
    """Repair degenerate parameters in place, drawing from torch's current random state.

    `run` calls the module, which is float32 and in eval mode. When reached, a batch norm takes its
    input's statistics, and `SmallBranches` scales a residual branch.
    """
    with torch.no_grad():
        norms = [layer for layer in module.modules() if isinstance(layer, _BATCH_NORMS)]
        offsets = {layer.bias for layer in norms if layer.bias is not None}
        for parameter in module.parameters():
            _enliven_parameter(parameter, _OFFSET if parameter in offsets else 0.0)
        hooks = [layer.register_forward_pre_hook(_set_statistics) for layer in norms]
        others = [layer for layer in module.modules() if layer not in norms]
        try:
            with _buffers_kept(others), SmallBranches():
                run()
        finally:
            for hook in hooks:
                hook.remove()


@contextmanager
def _buffers_kept(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Restore buffers that calls inside the block write, such as caches."""
    held = [
        (layer, name, buffer, buffer.clone())
        for layer in layers
        for name, buffer in layer.named_buffers(recurse=False)
    ]
    yield
    for layer, name, buffer, values in held:
        setattr(layer, name, buffer)
        buffer.copy_(values)


def _enliven_parameter(parameter: Tensor, offset: float) -> None:
    """Redraw constant vectors, as biases if they are 0, else as gains; give matrices unit gain.

    A matrix's gain is the factor by which it scales the deviation of independent inputs. Biases are
    drawn around `offset`.
    """
    fewest = _FEWEST if parameter.dim() < 2 or parameter.any() else 1  # noqa: PLR2004
    if not parameter.is_floating_point() or parameter.numel() < fewest:
        return
    constant = bool((parameter == parameter.flatten()[0]).all())
    if parameter.numel() == max(parameter.shape):
        if constant and not parameter.any():
            parameter.normal_(offset, _BIAS_STD)
        elif constant:
            parameter.uniform_(*_SCALES)
        return
    fan_in = parameter.numel() / parameter.shape[0]
    if constant:
        parameter.normal_(0.0, fan_in**-0.5)
    elif (gain := float(parameter.std()) * fan_in**0.5) < _WEAK_GAIN:
        parameter.div_(gain)


def _set_statistics(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    """Set the statistics to each channel's mean and second moment; input (batch, channels, ...).

    The second moment replaces the variance: it is larger by the mean's square, so a channel that
    hardly varies is not amplified together with its rounding errors. Nor is one that a ReLU blocks:
    `_FAINTEST` bounds a channel's growth relative to its layer. Rounding to bfloat16's 8 bits keeps
    the last bits, in which machines differ, out of the weights.
    """
    values = arguments[0]
    axes = [axis for axis in range(values.dim()) if axis != 1]
    square = values.square().mean(axes)
    square = square.clamp(min=_FAINTEST * float(square.mean()))
    moments = {"running_mean": values.mean(axes), "running_var": square}
    for name, moment in moments.items():
        statistic = getattr(layer, name)
        if statistic is not None:
            statistic.copy_(moment.to(torch.bfloat16))


def _draw(spec: InputSpec, program: ProgramSpec) -> Tensor:
    """Return a sample of an input with each dynamic dimension at its lowest size."""
    shape = tuple(s if isinstance(s, int) else program.dimensions[s].low for s in spec.shape)
    sample = spec.sample
    match sample.kind:
        case SampleKind.NORMAL:
            drawn = torch.randn(shape) * sample.std + sample.mean
        case SampleKind.UNIFORM:
            drawn = torch.rand(shape) * (sample.high - sample.low) + sample.low
        case SampleKind.INTEGERS:
            drawn = torch.randint(int(sample.low), int(sample.high), shape)
        case SampleKind.PREFIX_MASK | SampleKind.ONES:
            drawn = torch.ones(shape)
    return drawn.to(torch.float32 if spec.dtype.is_floating else getattr(torch, spec.dtype.value))


# Functions that preserve proportionality to the weights.
_HANDED_ON = frozenset({
    nn.functional.dropout, torch.Tensor.contiguous, torch.Tensor.flatten, torch.Tensor.mul,
    torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.Tensor.permute, torch.Tensor.reshape,
    torch.Tensor.squeeze, torch.Tensor.transpose, torch.Tensor.unsqueeze, torch.Tensor.view,
})  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """The origin of a tensor.

    Attributes:
        depth: the largest number of weighted operations on a path from the inputs to it.
        scaled_by: the weight and bias that it is proportional to; empty if unknown.
    """

    depth: int = 0
    scaled_by: tuple[nn.Parameter, ...] = ()


class SmallBranches(TorchFunctionMode):
    """A mode that scales the last weights of each residual branch when its sum is reached.

    A sum of two results of one shape is residual if one of them, the branch, depends on more
    weighted operations than the other, the trunk, and if the branch is, except for its shape, a
    weighted operation's result. That operation's parameters, and its result in this sum, are scaled
    down until the branch's deviation is `SHARE` of its trunk's; smaller branches stay. Factors have
    bfloat16's 8 bits, so that the last bits, in which machines differ, stay out of the weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func` and record its result's origin; scale a branch before it is added."""
        named = dict(kwargs or {})
        tensors = [each for each in (*args, *named.values()) if isinstance(each, Tensor)]
        if func in _SUMS:
            self._shrink(tensors)
        result = func(*args, **named)
        if isinstance(result, Tensor) and (made := self._known(func, tensors)) is not None:
            self._made[result] = made
        return result

    def _known(self, func: Callable[..., Any], tensors: list[Tensor]) -> _Made | None:
        """Return the origin of a result; None if it depends on parameters only."""
        weights = tuple(each for each in tensors if isinstance(each, nn.Parameter))
        if len(weights) == len(tensors):
            return None
        before: list[_Made] = [self._made[each] for each in tensors if each in self._made]
        depth = max((made.depth for made in before), default=0)
        if weights:
            return _Made(depth + 1, weights)
        if func in _HANDED_ON and len(before) == len(tensors) == 1:
            return before[0]
        return _Made(depth)

    def _shrink(self, terms: list[Tensor]) -> None:
        """Scale the branch among the terms of a sum, if the sum is residual."""
        known = [(self._made[term], term) for term in terms if term in self._made]
        if len(known) != 2 or known[0][1].shape != known[1][1].shape:  # noqa: PLR2004
            return
        (low, trunk), (high, branch) = sorted(known, key=lambda pair: pair[0].depth)
        if low.depth == high.depth or not high.scaled_by:
            return
        wanted, found = SHARE * float(trunk.std()), float(branch.std())
        if 0 < wanted < found:
            factor = torch.tensor(wanted / found, dtype=torch.bfloat16)
            for each in (branch, *high.scaled_by):
                each.mul_(factor.to(each.dtype))


def misfit(forward: Callable[..., Any], names: Iterable[str], positions: int = 0) -> str:
    """Explain why a call with these positional and named arguments fails; empty if it does not.

    The result is also empty if the parameters of `forward` are unknown.
    """
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return ""
    try:
        for bind in (signature.bind_partial, signature.bind):  # first unknown, then missing names
            bind(*range(positions), **dict.fromkeys(names))
    except TypeError as error:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        taken = [name for name, each in signature.parameters.items() if each.kind in kinds]
        return f"{error}; forward takes {', '.join(taken) or 'nothing'}"
    return ""
