"""Decompose short-time Fourier transforms into matrix products with cosines and sines.

A cosine is even about the middle of a frame of N samples and a sine is odd, so that

    Re X[k] = sum_n (x[n] + x[N - n]) cos(2 pi k n / N)      n from 1 to N / 2
    Im X[k] = sum_n (x[n] - x[N - n]) (-sin(2 pi k n / N))

with x[0] added to every Re X[k], and x[N / 2], which is its own partner, counted once. So there are
two products with half a frame each: half the multiplications of one product with whole frames.

The inverse is the same sum with each bin but the first and the last counted twice, since it stands
for its conjugate too. For complex signals and further axes, each plane is multiplied by both bases.
All other complex numbers are carried on real and imaginary planes
(`transforms/graph/complex_planes.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from transforms.graph.complex_planes import ComplexProgram, Form, Planes
from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.layouts import Unfit, same_layout
from transforms.graph.schemas import bound
from transforms.graph.traced import constant, untraced

aten = torch.ops.aten
_NORMS = {None: 0, "backward": 0, "ortho": 1, "forward": 2}  # as the core operators number them


def _family(core: Any, *kinds: str) -> tuple[Any, ...]:
    """Return a core operator and the torch.fft operators of the given kinds that build on it."""
    names = [f"fft_{kind}{axes}" for kind in kinds for axes in ("", "2", "n")]
    return core.default, *(getattr(aten, name).default for name in names)


# Transforms from real signals to bins, from bins to bins, and back to real signals.
_OF_REAL = _family(aten._fft_r2c, "rfft", "ihfft")
_OF_COMPLEX = _family(aten._fft_c2c, "fft", "ifft")
_TO_REAL = _family(aten._fft_c2r, "irfft", "hfft")
# Transforms with the sign of an inverse one; other core operators have an argument for the sign.
_INVERSE = _family(aten._fft_c2r, "ifft", "irfft", "ihfft")


class DecomposeStft(GraphPass):
    """Replaces STFT(x) with Unfold(x) @ cos and @ -sin, and all complex numbers with real ones.

    `torch.stft` and `torch.fft.rfft` become two matrix products: the frames, which are windowed
    views of the signal without the part that the window zeroes, folded in the middle, times the
    Fourier basis, which includes the normalisation. `torch.fft.irfft` and `torch.istft` are
    products with such a basis and a sum of overlapping frames; several axes are transformed one by
    one. The basis is computed in float64 from exactly reduced angles and rounded once. Complex
    numbers, whatever their source, are carried as real and imaginary planes.

    For finite signals the result differs from the FFT's by rounding only. |z| is
    sqrt(re^2 + im^2), which overflows above 1.8e19 in float32, where the FFT's hypot does not.

    Refuses complex numbers that leave the program or reach an operator without a real form, frames
    longer than `largest_frame` samples (the basis has about its square elements) or of dynamic
    length, and signals that are not float32 or float64.
    """

    def __init__(self, *, largest_frame: int = 4096) -> None:
        self._largest_frame = largest_frame

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every transform and every complex number that can be replaced."""
        forms = self._forms(editor)
        carried = ComplexProgram(editor, forms)
        for node, reason in carried.refused.items():
            journal.refused(node, reason)
        _refresh_strides(editor, carried.replace())
        for node in carried.sources:
            how = "products with a Fourier basis" if node.target in forms else "its real planes"
            journal.changed(f"replaced {node.name} by {how}")

    def _forms(self, editor: ProgramEditor) -> dict[Any, Form]:
        forms: dict[Any, Form] = {aten.istft.default: self._istft}
        for operator in (*_OF_REAL, *_OF_COMPLEX, *_TO_REAL):
            forms[operator] = functools.partial(self._dft, operator)
        for operator in (aten.stft.default, aten.stft.center):
            forms[operator] = functools.partial(self._stft, editor, operator)
        return forms

    def _dft(self, operator: Any, signal: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a transform along axes, for each of torch's operators that does one."""
        given = bound(operator, (signal, *args), kwargs)
        planes = tuple(signal) if isinstance(signal, Planes) else (signal,)
        dft = _Dft.of(operator, planes[0].shape, given)
        for length in dft.lengths:
            if not isinstance(length, int):
                raise Unfit(f"the length of an axis of {operator} is not fixed ({length})")
            self._check_size(length)
        if operator in _TO_REAL:
            return _back_to_real(planes, dft)
        if len(planes) == 1:
            _check_signal(signal)
            halved = operator in _OF_REAL and given.get("onesided", True)
            return _of_real(signal, dft, halved=halved)
        resized = _resized(planes, dft.axes, dft.lengths)
        return Planes(*_turned_along(resized, dft, dft.scale))

    def _stft(
        self, editor: ProgramEditor, operator: Any, signal: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        """View the signal as frames, apply the window and transform; bins come before frames."""
        given = bound(operator, (signal, *args), kwargs)
        window, length = given["window"], given["n_fft"]
        _check_signal(signal)
        if given["align_to_window"]:
            raise Unfit("its frames are aligned to the window")
        if window is not None and window.dtype != signal.dtype:
            raise Unfit(f"the window is {window.dtype}, unlike the signal")
        self._check_size(length)
        width = given["win_length"] or length
        values = _known(editor, window)
        if window is None and width < length:
            values = untraced(torch.ones)(width)
        read = None if values is None else untraced(_widened)(values, length)
        fold = _Fold.of(length, read)
        if given.get("center"):
            signal = _continued(signal, length // 2, given["pad_mode"])
        left, right = fold.first, length - fold.last
        if left or right:
            signal = signal[..., left : -right or None]
        frames = signal.unfold(-1, length - left - right, given["hop_length"] or length // 4)
        if read is not None:
            factor = untraced(_part)(read, left, length - right, signal.dtype)
            frames = frames * constant(f"fourier_window_{length}", factor)
        elif window is not None:
            frames = frames * _widened(window, length)
        bins = length if given["onesided"] is False else length // 2 + 1
        scale = length**-0.5 if given["normalized"] else 1.0
        planes = [_swapped(plane, -2) for plane in _products(frames, fold, bins, scale)]
        return Planes(*planes) if given["return_complex"] else torch.stack(planes, -1)

    def _istft(self, bins: Planes, *args: Any, **kwargs: Any) -> Tensor:
        """Add up frames, windowed again, and divide by the sum of the squared windows."""
        given = bound(aten.istft.default, (bins, *args), kwargs)
        window, length = given["window"], given["n_fft"]
        if given["return_complex"]:
            raise Unfit("istft makes a complex signal")
        self._check_size(length)
        scale = length**-0.5 if given["normalized"] else 1.0 / length
        halves = [_swapped(plane, -2)[..., : length // 2 + 1] for plane in bins]
        frames = _back(halves, length, 1, scale)
        if window is None:
            width = given["win_length"] or length
            ones = untraced(torch.ones)(width, dtype=frames.dtype)
            window = constant(f"fourier_ones_{width}", ones)
        return _added_up(frames, window, given)

    def _check_size(self, length: int) -> None:
        if length > self._largest_frame:
            raise Unfit(f"a basis for frames of {length} samples is too large")


def _check_signal(signal: Tensor) -> None:
    if signal.dtype not in (torch.float32, torch.float64):
        raise Unfit(f"the signal is {signal.dtype}, not float32 or float64")


class _Dft(NamedTuple):
    """A transform along one or more axes.

    Attributes:
        axes: counted from the end, from -1; if one has half the bins, it is the last.
        lengths: N of each axis, an integer if fixed, to which the signal is padded or cut.
        sign: of the angle; usually -1 for a transform into bins.
        scale: the factor for all axes together.
    """

    axes: tuple[int, ...]
    lengths: tuple[Any, ...]
    sign: int
    scale: float

    @classmethod
    def of(cls, operator: Any, shape: Sequence[Any], given: Mapping[str, Any]) -> _Dft:
        """Return the transform that a call asks for, for a signal of the given shape."""
        dims, sizes = given["dim"], given.get("s")
        if isinstance(dims, int):
            dims, sizes = [dims], [given["n"]]
        elif dims is None:
            dims = range(-len(shape if sizes is None else sizes), 0)
        axes = [dim % len(shape) - len(shape) for dim in dims]
        lengths = [shape[axis] for axis in axes]
        if operator in _TO_REAL:
            lengths[-1] = 2 * (lengths[-1] - 1)
        sizes = [*(sizes or [None] * len(axes))]
        sizes[-1] = given.get("last_dim_size", sizes[-1])
        both = zip(lengths, sizes, strict=True)
        lengths = [own if wanted in (None, -1) else wanted for own, wanted in both]
        forward = given.get("forward", operator not in _INVERSE)
        norm = given.get("normalization")
        if norm is None:
            norm = _NORMS[given["norm"]] if forward else 2 - _NORMS[given["norm"]]
        count = math.prod(lengths)
        # A power of a dynamic size cannot be a size expression; such a call is refused.
        scale = (1.0, count**-0.5, 1.0 / count)[norm] if isinstance(count, int) else 1.0
        return cls(tuple(axes), tuple(lengths), -1 if forward else 1, scale)

    def but_the_last(self) -> _Dft:
        return self._replace(axes=self.axes[:-1], lengths=self.lengths[:-1])


def _of_real(signal: Tensor, dft: _Dft, *, halved: bool) -> Planes:
    """Multiply by half a basis along the last axis, then by whole bases along the others."""
    [signal] = _resized((signal,), dft.axes, dft.lengths)
    axis, length = dft.axes[-1], dft.lengths[-1]
    frames, bins = _swapped(signal, axis), length // 2 + 1 if halved else length
    real, imag = _products(frames, _Fold.of(length, None), bins, dft.scale)
    planes = [_swapped(p, axis) for p in (real, -imag if dft.sign > 0 else imag)]
    return Planes(*_turned_along(planes, dft.but_the_last()))


def _back_to_real(planes: Sequence[Tensor], dft: _Dft) -> Tensor:
    """Multiply by whole bases along all axes but the last, then by half a basis along it."""
    if not planes[0].is_floating_point():
        planes = [plane.to(torch.get_default_dtype()) for plane in planes]
    axis, length = dft.axes[-1], dft.lengths[-1]
    planes = _resized(planes, dft.axes, (*dft.lengths[:-1], length // 2 + 1))
    turned = _turned_along(planes, dft.but_the_last())
    rows = [_swapped(plane, axis) for plane in turned]
    return _swapped(_back(rows, length, dft.sign, dft.scale), axis)


def _turned_along(planes: Sequence[Tensor], dft: _Dft, scale: float = 1.0) -> Sequence[Tensor]:
    """Multiply the real plane, and the imaginary one if any, by whole bases along all axes."""
    for axis, length in zip(dft.axes, dft.lengths, strict=True):
        rows = [_swapped(plane, axis) for plane in planes]
        cosines, sines = _basis(
            "whole_", range(length), length, length, dft.sign, [scale] * length, rows[0].dtype
        )
        real, imag = rows[0] @ cosines, rows[0] @ sines
        if len(rows) > 1:
            real, imag = real - rows[1] @ sines, imag + rows[1] @ cosines
        planes, scale = [_swapped(plane, axis) for plane in (real, imag)], 1.0
    return planes


def _swapped(value: Tensor, axis: int, other: int = -1) -> Tensor:
    order = list(range(value.dim()))
    order[axis], order[other] = order[other], order[axis]
    return value if axis == other else value.permute(order)


def _padded(value: Tensor, margins: list[int]) -> Tensor:
    """Pad with zeros, the last axis first; a negative margin cuts."""
    padded: Tensor = aten.constant_pad_nd.default(value, margins)
    return padded


def _resized(
    planes: Sequence[Tensor], axes: Sequence[int], lengths: Sequence[int]
) -> Sequence[Tensor]:
    """Pad planes with zeros at the end, or cut them, to the length of each axis."""
    for axis, length in zip(axes, lengths, strict=True):
        size = planes[0].shape[axis]
        if not surely_equal((length,), (size,)):
            margins = [0] * (2 * (-axis - 1)) + [0, length - size]
            planes = [_padded(plane, margins) for plane in planes]
    return planes


def _continued(signal: Tensor, amount: int, mode: str) -> Tensor:
    """Extend the signal by `amount` samples at both ends, as `center` requires."""
    if signal.dim() == 1:  # reflection needs a channel axis
        return _continued(signal.unsqueeze(0), amount, mode).squeeze(0)
    return torch.nn.functional.pad(signal, (amount, amount), mode)


@untraced
def _known(editor: ProgramEditor, window: Tensor | None) -> Tensor | None:
    """Return the constant behind a traced value; None if it is not a constant."""
    nodes = {id(node.meta["val"]): node for node in editor.graph.find_nodes(op="placeholder")}
    value = editor.constant(nodes.get(id(window)))
    return None if value is None else value.detach()


def _widened(window: Tensor, length: int) -> Tensor:
    missing = length - window.shape[0]
    if not missing:
        return window
    return _padded(window, [missing // 2, missing - missing // 2])


def _part(window: Tensor, first: int, end: int, dtype: torch.dtype) -> Tensor:
    return window[first:end].to(dtype).clone()  # a constant must not be a view


class _Fold(NamedTuple):
    """The samples of a frame that are read, and where their pairing with partners starts."""

    length: int  # N
    first: int
    last: int  # the first one that is no longer read
    start: int  # the first n of the pairs (n, N - n)

    @classmethod
    @untraced
    def of(cls, length: int, window: Tensor | None) -> _Fold:
        """Return all samples except those that a constant window zeroes at both ends."""
        if window is None or not window.any():
            return cls(length, 0, length, 1)
        where = window.nonzero().flatten().tolist()
        start = min(min(n, length - n) for n in where if n) if where[1:] or where[0] else 1
        return cls(length, start if window[0] == 0 else 0, length - start + 1, start)


def _products(frames: Tensor, fold: _Fold, bins: int, scale: float) -> tuple[Tensor, Tensor]:
    """Transform windowed frames (..., samples that are read) into two planes of (..., bins)."""
    length, half = fold.length, fold.length // 2
    front = frames[..., fold.start - fold.first : half + 1 - fold.first]
    back = frames[..., length - half - fold.first : fold.last - fold.first].flip(-1)
    samples = range(fold.start, half + 1)  # the middle sample is its own partner
    factors = [scale / 2 if n * 2 == length else scale for n in samples]
    cosines, sines = _basis("", samples, bins, length, -1, factors, frames.dtype)
    real, imag = (front + back) @ cosines, (front - back) @ sines
    if fold.first == 0:
        real = real + (frames[..., :1] if scale == 1.0 else frames[..., :1] * scale)
    return real, imag


def _basis(  # noqa: PLR0917
    kind: str, rows: range, columns: int, length: int, sign: int, factors: Sequence[float],
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return cosines and signed sines of 2 pi k n / N, (rows, columns), rows times factors.

    They are computed in float64 and rounded once. The angle's multiple k n is reduced modulo N in
    integers, so that sines of whole turns are 0.
    """

    @untraced
    def formed() -> tuple[Tensor, Tensor]:
        turns = torch.outer(torch.arange(rows.start, rows.stop), torch.arange(columns)) % length
        angles = turns.double() * (2.0 * math.pi / length)
        sines = torch.where(turns * 2 % length == 0, 0.0, angles.sin())
        scale = torch.tensor(factors, dtype=torch.double)[:, None]
        # no negative zeros
        return (angles.cos() * scale).to(dtype), (0.0 + sign * sines * scale).to(dtype)

    cosines, sines = formed()
    return (
        constant(f"fourier_{kind}cosines_{length}", cosines),
        constant(f"fourier_{kind}sines_{length}", sines),
    )


def _back(planes: Sequence[Tensor], length: int, sign: int, scale: float) -> Tensor:
    """Transform one or two planes of (..., length // 2 + 1) bins into (..., length) samples."""
    bins = range(length // 2 + 1)  # all but the first and last stand for their conjugates, too
    factors = [scale if k * 2 % length == 0 else 2.0 * scale for k in bins]
    cosines, sines = _basis("inverse_", bins, length, length, -sign, factors, planes[0].dtype)
    samples = planes[0] @ cosines
    return samples + planes[1] @ sines if len(planes) > 1 else samples


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """Return the sum of frames (..., T, length) that start `hop` apart, padded to whole hops."""
    length = frames.shape[-1]
    count = -(-length // hop)
    if count * hop != length:
        frames = _padded(frames, [0, count * hop - length])
    parts = [
        _padded(frames[..., place * hop : (place + 1) * hop], [0, 0, place, count - 1 - place])
        for place in range(count)
    ]
    return functools.reduce(torch.add, parts).flatten(-2)


def _added_up(frames: Tensor, window: Tensor, given: Mapping[str, Any]) -> Tensor:
    """Add up windowed frames and divide by the sum of squared windows; cut to `length`."""
    length, wanted = given["n_fft"], given["length"]
    hop, margin = given["hop_length"] or length // 4, length // 2 if given["center"] else 0
    behind = -(-length // hop) * hop - length  # padding of the last hop
    window = _widened(window, length)
    weights = torch.ones_like(frames) * (window * window)
    signal, sums = (_overlapped(part, hop) for part in (frames * window, weights))
    end = -(behind + (margin if wanted is None else 0)) or None
    if wanted is not None and statically_known_true(margin + wanted + behind <= signal.shape[-1]):
        end = margin + wanted
    signal = signal[..., margin:end] / sums[..., margin:end]
    if wanted is None or surely_equal((wanted,), signal.shape[-1:]):
        return signal
    return torch.cat((signal, signal.new_zeros(*signal.shape[:-1], wanted)), -1)[..., :wanted]


class SignalsOfAnyLength(TorchFunctionMode):
    """A mode that keeps the dynamic length passed to `torch.istft`, which torch would fix."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Decompose an inverse transform to a dynamic length; call all else unchanged."""
        how = dict(kwargs or {})
        if function in (torch.istft, Tensor.istft):
            named = {"self" if name == "input" else name: value for name, value in how.items()}
            given = bound(aten.istft.default, args, named)
            sizes = given["length"], given["self"].shape[-1]
            dynamic = any(isinstance(size, torch.SymInt) for size in sizes)
            if dynamic and given["length"] is not None and not given["return_complex"]:
                return _inverse(given)
        return function(*args, **how)


def _inverse(given: Mapping[str, Any]) -> Tensor:
    length, window = given["n_fft"], given["window"]
    bins = given["self"][..., : length // 2 + 1, :].transpose(-1, -2)
    frames = torch.fft.irfft(bins, length, norm="ortho" if given["normalized"] else "backward")
    if window is None:
        window = frames.new_ones(given["win_length"] or length)
    return _added_up(frames, window, given)


def _refresh_strides(editor: ProgramEditor, fresh: list[Node]) -> None:
    """Recompute the nodes after `fresh`; a view that the new strides forbid becomes a reshape."""
    stale = set(fresh)
    for node in editor.graph.nodes:
        before = node.meta.get("val")  # none for torch's assertions and a loaded file's outputs
        if before is None or node.op == "output" or not stale.intersection(node.all_input_nodes):
            continue
        try:
            editor.refresh(node)
        except (RuntimeError, ValueError):
            if node.target is not aten.view.default:
                raise
            node.target = aten.reshape.default
            editor.refresh(node)
        if not same_layout(before, node.meta["val"]):
            stale.add(node)
