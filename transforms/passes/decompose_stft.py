"""Turns short-time Fourier transforms into matrix products with cosines and sines.

A cosine is even about the middle of a frame of N samples and a sine is odd, so that

    Re X[k] = sum_n (x[n] + x[N - n]) cos(2 pi k n / N)      n from 1 to N / 2
    Im X[k] = sum_n (x[n] - x[N - n]) (-sin(2 pi k n / N))

with x[0] added to every Re X[k], and x[N / 2], its own partner, counted once: two products with
half a frame each, half the multiplications of one with cosines and sines of a whole frame.

The inverse is the same sum with each bin but the first and the last counted twice, as it stands for
its conjugate too. Of complex signals, and of further axes, each plane is multiplied by both. What
complex numbers are made and used for besides is carried on real and imaginary planes
(`transforms/graph/complex_planes.py`).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from transforms.graph.complex_planes import (
    ComplexProgram,
    Planes,
    PlanesForm,
    complex_sources,
    is_complex,
    is_written,
)
from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.layouts import same_layout
from transforms.graph.schemas import bound_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor


aten = torch.ops.aten

_STFT = (aten.stft.default, aten.stft.center)
_ISTFT = aten.istft.default


def _operators(*names: str) -> tuple[Any, ...]:
    return tuple(getattr(aten, name).default for name in names)


# Into bins from real signals, from bins to bins, and back to real signals.
_OF_REAL = _operators(
    "_fft_r2c", "fft_rfft", "fft_rfft2", "fft_rfftn", "fft_ihfft", "fft_ihfft2", "fft_ihfftn"
)
_OF_COMPLEX = _operators(
    "_fft_c2c", "fft_fft", "fft_fft2", "fft_fftn", "fft_ifft", "fft_ifft2", "fft_ifftn"
)
_TO_REAL = _operators(
    "_fft_c2r", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_hfft", "fft_hfft2", "fft_hfftn"
)
# Whose signs are those of an inverse transform; the core operators say so themselves.
_INVERSE = _operators(
    "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_irfft", "fft_irfft2", "fft_irfftn",
    "fft_ihfft", "fft_ihfft2", "fft_ihfftn", "_fft_c2r",
)  # fmt: skip
_NORMS = {None: 0, "backward": 0, "ortho": 1, "forward": 2}  # as the core operators number them


class _Transform(NamedTuple):
    """Real DFT of frames: bins k of X[k] = scale * sum_n window[n] x[n] exp(-2 pi i k n / N)."""

    length: int  # N
    bins: int
    scale: float


class DecomposeStft(GraphPass):
    """Replaces STFT(x) with Unfold(x) @ cos and @ -sin, and all complex numbers with real ones.

    `torch.stft` (with or without `center`), the real FFT that it decomposes to and
    `torch.fft.rfft` become two matrix products: the frames, which are windowed views of the signal
    without what the window makes zero, folded in the middle, times the Fourier basis, into which
    the normalisation is multiplied. `torch.fft.irfft` and `torch.istft` are products with such a
    basis and a sum of overlapping frames. Transforms of complex signals and of several axes
    (`torch.fft.fft`, `rfft2`, `irfftn`, `hfft` and the like) are products axis by axis. The basis
    is formed in float64 from exactly reduced angles and rounded once. Complex numbers, of a
    spectrum, a constant, `view_as_complex`, `complex` or `polar`, are carried as real and imaginary
    planes, so that none is left.

    For finite signals the result differs from the FFT's by rounding. |z| is sqrt(re^2 + im^2),
    which overflows above 1.8e19 in float32 where the FFT's hypot does not.

    Refuses complex numbers that leave the program, are written in place or meet an operator without
    a real form, frames longer than `largest_frame`, or of a length that is not fixed, and signals
    that are not float32 or float64.

    Args:
        largest_frame: the longest transform, in samples; the basis has about its square elements.
    """

    name = "decompose_stft"
    summary = "Replaces STFT(x) with Unfold(x) @ FourierBasis"

    def __init__(self, *, largest_frame: int = 4096) -> None:
        self._largest_frame = largest_frame

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every transform that may be replaced, and what complex numbers can be."""
        sources = complex_sources(editor)
        transforms = _transforms(editor)
        for node in transforms:
            reason = self._refusal(node)
            if reason:
                journal.refused(node, reason)
            elif fake_value(node).is_complex():
                sources[node] = lambda node: _spectrum(editor, node)
            else:
                with editor.graph.inserting_before(node):
                    both = list(_spectrum(editor, node))
                    fresh = editor.call(aten.stack.default, both, -1, like=node)
                editor.replace(node, fresh)
                _refresh_strides(editor, [fresh])
                journal.changed(f"replaced {node.name} by products with a Fourier basis")
        for node in editor.calls(*_TO_REAL):
            if not is_complex(node.all_input_nodes[0]):
                self._invert_real(editor, journal, node)
        carried = ComplexProgram(editor, sources, self._forms(editor))
        for node, reason in carried.refused.items():
            journal.refused(node, reason)
        _refresh_strides(editor, carried.replace())
        for node in carried.sources:
            how = "products with a Fourier basis" if node in transforms else "its real planes"
            journal.changed(f"replaced {node.name} by {how}")

    def _invert_real(self, editor: ProgramEditor, journal: Journal, node: Node) -> None:
        """Bins that are real."""
        reason = self._dft_refusal(node)
        if reason:
            journal.refused(node, reason)
            return
        bins = node.all_input_nodes[0]
        with editor.graph.inserting_before(node):
            if not fake_value(bins).is_floating_point():
                given = fake_value(node).dtype
                bins = editor.call(aten._to_copy.default, bins, like=node, dtype=given)
            fresh = _back_to_real(editor, node, (bins,))
        editor.replace(node, fresh)
        _refresh_strides(editor, [fresh])
        journal.changed(f"replaced {node.name} by a product with a Fourier basis")

    def _refusal(self, node: Node) -> str | None:
        signal = fake_value(node.args[0])  # type: ignore[arg-type]
        if signal.dtype not in (torch.float32, torch.float64):
            return f"the signal is {signal.dtype}, not float32 or float64"
        if node.target not in _STFT:
            return self._dft_refusal(node)
        return _stft_refusal(node) or self._size_refusal(_read(node).length)

    def _dft_refusal(self, node: Node) -> str | None:
        for length in _Dft.of(node).lengths:
            if not isinstance(length, int):
                return f"the length of an axis of {node.name} is not fixed ({length})"
            if reason := self._size_refusal(length):
                return reason
        return None

    def _istft_refusal(self, node: Node) -> str | None:
        return _istft_refusal(node) or self._size_refusal(bound_arguments(node)["n_fft"])

    def _size_refusal(self, length: int) -> str | None:
        too_large = length > self._largest_frame
        return f"a basis for frames of {length} samples is too large" if too_large else None

    def _forms(self, editor: ProgramEditor) -> dict[Any, PlanesForm]:
        """The transforms of complex numbers that can be replaced, by operator."""

        def form(refusal: Callable[[Node], str | None], make: Callable[..., Any]) -> PlanesForm:
            return PlanesForm(refusal, functools.partial(make, editor))

        return {
            **dict.fromkeys(_OF_COMPLEX, form(self._dft_refusal, _of_complex)),
            **dict.fromkeys(_TO_REAL, form(self._dft_refusal, _back_to_real)),
            _ISTFT: form(self._istft_refusal, _istft),
        }


# Reading


def _stft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    if arguments["align_to_window"]:
        return "its frames are aligned to the window"
    window = arguments["window"]
    if window is not None and fake_value(window).dtype != fake_value(arguments["self"]).dtype:
        return f"the window is {fake_value(window).dtype}, unlike the signal"
    return None


def _transforms(editor: ProgramEditor) -> list[Node]:
    """The calls that make bins of a real signal."""
    whole = [n for n in editor.calls(*_OF_COMPLEX) if not is_complex(n.all_input_nodes[0])]
    return [*editor.calls(*_STFT, *_OF_REAL), *whole]


def _read(node: Node) -> _Transform:
    arguments = bound_arguments(node)
    length = arguments["n_fft"]
    onesided = arguments["onesided"] is not False
    return _Transform(
        length=length,
        bins=length // 2 + 1 if onesided else length,
        scale=length**-0.5 if arguments["normalized"] else 1.0,
    )


class _Dft(NamedTuple):
    """Transforms along axes, by all of torch's operators for them.

    Attributes:
        axes: counted from the end, from -1; the last is the one that has half the bins, if one has.
        lengths: N of each, an integer where it is fixed, to which the signal is padded or cut.
        sign: of the angle, -1 for a transform into bins as a rule.
        scale: of all axes together.
    """

    axes: tuple[int, ...]
    lengths: tuple[Any, ...]
    sign: int
    scale: float

    @classmethod
    def of(cls, node: Node) -> _Dft:
        """What a call asks for."""
        arguments = bound_arguments(node)
        shape = fake_value(arguments["self"]).shape
        dims, sizes = arguments["dim"], arguments.get("s")
        if isinstance(dims, int):
            dims, sizes = [dims], [arguments["n"]]
        elif dims is None:
            dims = range(-len(shape if sizes is None else sizes), 0)
        axes = [dim % len(shape) - len(shape) for dim in dims]
        lengths = [shape[axis] for axis in axes]
        if node.target in _TO_REAL:
            lengths[-1] = 2 * (lengths[-1] - 1)
        sizes = [*(sizes or [None] * len(axes))]
        sizes[-1] = arguments.get("last_dim_size", sizes[-1])
        both = zip(lengths, sizes, strict=True)
        lengths = [own if given in (None, -1) else given for own, given in both]
        forward = arguments.get("forward", node.target not in _INVERSE)
        norm = arguments.get("normalization")
        if norm is None:
            norm = _NORMS[arguments["norm"]] if forward else 2 - _NORMS[arguments["norm"]]
        count = math.prod(lengths)
        # A power of a size that is not fixed is none that sizes can have; such a call is refused.
        scale = (1.0, count**-0.5, 1.0 / count)[norm] if isinstance(count, int) else 1.0
        return cls(tuple(axes), tuple(lengths), -1 if forward else 1, scale)


def _istft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    if arguments["return_complex"] or arguments["onesided"] is False:
        return f"{node.name} takes bins of both signs"
    dynamic = not isinstance(fake_value(arguments["self"]).shape[-1], int)
    if arguments["length"] is not None and dynamic:
        return f"{node.name} makes a signal of a given length of frames of a dynamic number"
    return None


# Writing


def _spectrum(editor: ProgramEditor, node: Node) -> Planes:
    return _stft(editor, node) if node.target in _STFT else _of_real(editor, node)


def _stft(editor: ProgramEditor, node: Node) -> Planes:
    """Frames as a view of the signal, windowed, transformed; bins before frames in the result."""
    arguments, transform = bound_arguments(node), _read(node)
    signal, length = arguments["self"], transform.length
    if arguments.get("center"):
        signal = _padded(editor, node, signal, length // 2, arguments["pad_mode"])
    window = _centred_window(editor, arguments, length)
    fold = _Fold.of(length, window)
    left, right = fold.first, length - fold.last
    if left or right:
        signal = editor.call(aten.slice.Tensor, signal, -1, left, -right or None, like=node)
    hop = arguments["hop_length"] or length // 4
    frames = editor.call(aten.unfold.default, signal, -1, length - left - right, hop, like=node)
    if window is not None:
        held = window[left : length - right].to(fake_value(signal).dtype).clone()  # no view
        named = f"fourier_window_{length}"
        factor = editor.add_constant(named, held, learned=False)
        frames = editor.call(aten.mul.Tensor, frames, factor, like=node)
    elif arguments["window"] is not None:
        moving = _computed_window(editor, node, arguments["window"], length)
        frames = editor.call(aten.mul.Tensor, frames, moving, like=node)
    planes = _products(editor, node, frames, fold, transform)
    return Planes(*(_swap(editor, node, plane, -2, -1) for plane in planes))


def _of_real(editor: ProgramEditor, node: Node) -> Planes:
    """Products with half a basis along the last axis, then with whole ones along the others."""
    dft = _Dft.of(node)
    [signal] = _resized(editor, node, (node.all_input_nodes[0],), dft)
    axis, length = dft.axes[-1], dft.lengths[-1]
    halved = node.target in _OF_REAL and bound_arguments(node).get("onesided", True)
    transform = _Transform(length, length // 2 + 1 if halved else length, dft.scale)
    frames = _swap(editor, node, signal, axis, -1)
    real, imag = _products(editor, node, frames, _Fold.of(length, None), transform)
    if dft.sign > 0:
        imag = editor.call(aten.neg.default, imag, like=node)
    planes: tuple[Node, ...] = tuple(_swap(editor, node, p, axis, -1) for p in (real, imag))
    for axis, length in list(zip(dft.axes, dft.lengths, strict=True))[:-1]:
        planes = _turned(editor, node, planes, axis, _Turn(length, dft.sign, 1.0))
    return Planes(*planes)


def _of_complex(editor: ProgramEditor, node: Node, planes: tuple[Node, ...]) -> Planes:
    dft = _Dft.of(node)
    planes, scale = _resized(editor, node, planes, dft), dft.scale
    for axis, length in zip(dft.axes, dft.lengths, strict=True):
        planes = _turned(editor, node, planes, axis, _Turn(length, dft.sign, scale))
        scale = 1.0
    return Planes(*planes)


class _Turn(NamedTuple):
    """A transform along one axis: sums of scale * x[n] exp(sign 2 pi i k n / N)."""

    length: int
    sign: int
    scale: float


def _turned(
    editor: ProgramEditor, node: Node, planes: tuple[Node, ...], axis: int, turn: _Turn
) -> tuple[Node, ...]:
    """Planes, the imaginary one of which may be missing, times a whole basis along an axis."""
    places = torch.arange(turn.length)
    cosines, sines = (each * turn.scale for each in _waves(places, places, turn.length))
    dtype, call = fake_value(planes[0]).dtype, functools.partial(editor.call, like=node)

    def times(plane: Node, name: str, basis: torch.Tensor) -> Node:
        named = f"fourier_whole_{name}_{turn.length}"
        held = editor.add_constant(named, basis.to(dtype), learned=False)
        product: Node = call(aten.matmul.default, plane, held)
        return product

    rows = [_swap(editor, node, plane, axis, -1) for plane in planes]
    turned = 0.0 + sines * turn.sign  # no negative zeros
    real, imag = times(rows[0], "cosines", cosines), times(rows[0], "sines", turned)
    if len(rows) > 1:
        real = call(aten.sub.Tensor, real, times(rows[1], "sines", turned))
        imag = call(aten.add.Tensor, imag, times(rows[1], "cosines", cosines))
    return tuple(_swap(editor, node, plane, axis, -1) for plane in (real, imag))


def _resized(
    editor: ProgramEditor, node: Node, planes: tuple[Node, ...], dft: _Dft, last: int | None = None
) -> tuple[Node, ...]:
    """Planes with zeros behind them along each axis, or cut: to its length, the last to `last`."""
    wanted = [*dft.lengths[:-1], dft.lengths[-1] if last is None else last]
    for axis, length in zip(dft.axes, wanted, strict=True):
        if missing := length - fake_value(planes[0]).shape[axis]:
            margins = [0] * (2 * (-axis - 1)) + [0, missing]
            planes = tuple(
                editor.call(aten.constant_pad_nd.default, plane, margins, like=node)
                for plane in planes
            )
    return planes


def _padded(editor: ProgramEditor, node: Node, signal: Node, amount: int, mode: str) -> Node:
    """The signal with `amount` samples more at both ends, as `center` asks for."""
    flat = fake_value(signal).dim() == 1  # reflection wants an axis of channels
    if flat:
        signal = editor.call(aten.unsqueeze.default, signal, 0, like=node)
    padded = editor.call(aten.pad.default, signal, [amount, amount], mode, like=node)
    return editor.call(aten.squeeze.dim, padded, 0, like=node) if flat else padded


def _centred_window(
    editor: ProgramEditor, arguments: dict[str, Any], length: int
) -> torch.Tensor | None:
    """The window with zeros around it up to `length`; None where it is not a constant, or all 1."""
    width = arguments["win_length"] or length
    if arguments["window"] is not None:
        values = editor.constant(arguments["window"])
    else:
        values = torch.ones(width) if width < length else None
    if values is None:
        return None
    left = (length - width) // 2
    return torch.nn.functional.pad(values.detach().cpu(), (left, length - width - left))


def _computed_window(editor: ProgramEditor, node: Node, window: Node, length: int) -> Node:
    width = int(fake_value(window).shape[0])
    if width == length:
        return window
    left = (length - width) // 2
    margins = [left, length - width - left]
    return editor.call(aten.constant_pad_nd.default, window, margins, like=node)


class _Fold(NamedTuple):
    """Which samples of a frame are read, and from which on they are added to their partners."""

    length: int  # N
    first: int
    last: int  # the first that is not read any more
    start: int  # n, from which pairs (n, N - n) are taken

    @classmethod
    def of(cls, length: int, window: torch.Tensor | None) -> _Fold:
        """All samples but those that a constant window makes zero at both ends."""
        if window is None or not window.any():
            return cls(length, 0, length, 1)
        where = window.nonzero().flatten().tolist()
        start = min(min(n, length - n) for n in where if n) if where[1:] or where[0] else 1
        return cls(length, start if window[0] == 0 else 0, length - start + 1, start)


def _products(
    editor: ProgramEditor, node: Node, frames: Node, fold: _Fold, transform: _Transform
) -> tuple[Node, Node]:
    """Windowed frames (..., samples that are read) to (..., bins): real and imaginary parts."""
    value, half = fake_value(frames), fold.length // 2

    def call(target: Any, *args: Any) -> Node:
        return editor.call(target, *args, like=node)

    def cut(first: int, last: int) -> Node:
        return call(aten.slice.Tensor, frames, -1, first - fold.first, last - fold.first)

    def times(name: str, rows: Node, basis: torch.Tensor) -> Node:
        named = f"fourier_{name}_{fold.length}"
        held = editor.add_constant(named, basis.to(value.dtype), learned=False)
        return call(aten.matmul.default, rows, held)

    front = cut(fold.start, half + 1)
    back = call(aten.flip.default, cut(fold.length - half, fold.last), [-1])
    cosines, sines = _basis(fold, transform)
    real = times("cosines", call(aten.add.Tensor, front, back), cosines)
    imag = times("sines", call(aten.sub.Tensor, front, back), sines)
    if fold.first == 0:
        first = cut(0, 1)
        if transform.scale != 1.0:
            first = call(aten.mul.Tensor, first, transform.scale)
        real = call(aten.add.Tensor, real, first)
    return real, imag


def _waves(
    rows: torch.Tensor, columns: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of 2 pi k n / N in float64, for each row and column.

    The angle's multiple k n is reduced modulo N in integers, so that sines of whole turns are 0.
    """
    turns = torch.outer(rows, columns) % length
    angles = turns.double() * (2.0 * math.pi / length)
    return angles.cos(), torch.where(turns * 2 % length == 0, 0.0, angles.sin())


def _basis(fold: _Fold, transform: _Transform) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and negative sines of each bin in float64, (pairs, bins)."""
    length, half = fold.length, fold.length // 2
    samples = torch.arange(fold.start, half + 1)
    cosines, sines = _waves(samples, torch.arange(transform.bins), length)
    cosines = cosines * transform.scale
    sines = 0.0 - sines * transform.scale  # no negative zeros
    cosines[samples * 2 == length] *= 0.5  # the middle of the frame is its own partner
    return cosines, sines


def _back_to_real(editor: ProgramEditor, node: Node, planes: tuple[Node, ...]) -> Node:
    """Products with whole bases along all axes but the last, then with one of its half."""
    dft = _Dft.of(node)
    axis, length = dft.axes[-1], dft.lengths[-1]
    planes = _resized(editor, node, planes, dft, length // 2 + 1)
    for other, size in list(zip(dft.axes, dft.lengths, strict=True))[:-1]:
        planes = _turned(editor, node, planes, other, _Turn(size, dft.sign, 1.0))
    last = tuple(_swap(editor, node, plane, axis, -1) for plane in planes)
    turn = _Turn(length, dft.sign, dft.scale)
    return _swap(editor, node, _back(editor, node, last, turn), axis, -1)


def _back(editor: ProgramEditor, node: Node, planes: tuple[Node, ...], turn: _Turn) -> Node:
    """Bins (..., length // 2 + 1) to real samples (..., length); a plane may be missing."""
    length, bins = turn.length, turn.length // 2 + 1
    cosines, sines = _waves(torch.arange(bins), torch.arange(length), length)
    counts = torch.full((bins, 1), 2.0 * turn.scale, dtype=torch.double)
    counts[0] = turn.scale
    if length % 2 == 0:
        counts[-1] = turn.scale
    parts = []
    bases = {"inverse_cosines": cosines * counts, "inverse_sines": -turn.sign * sines * counts}
    for (name, basis), plane in zip(bases.items(), planes, strict=False):
        dtype = fake_value(plane).dtype
        held = editor.add_constant(f"fourier_{name}_{length}", basis.to(dtype), learned=False)
        parts.append(editor.call(aten.matmul.default, plane, held, like=node))
    return functools.reduce(lambda a, b: editor.call(aten.add.Tensor, a, b, like=node), parts)


def _istft(editor: ProgramEditor, node: Node, planes: Planes) -> Node:
    """Frames, windowed again and added up, over the sum of the windows' squares."""
    arguments = bound_arguments(node)
    length = arguments["n_fft"]
    call = functools.partial(editor.call, like=node)
    scale = length**-0.5 if arguments["normalized"] else 1.0 / length
    rows = Planes(*(_swap(editor, node, plane, -2, -1) for plane in planes))
    frames = _back(editor, node, rows, _Turn(length, 1, scale))
    window = arguments["window"]
    if window is None:
        ones = torch.ones(arguments["win_length"] or length, dtype=fake_value(frames).dtype)
        window = editor.add_constant(f"fourier_ones_{len(ones)}", ones, learned=False)
    window = _computed_window(editor, node, window, length)
    squares = call(aten.mul.Tensor, window, window)
    weights = call(aten.mul.Tensor, call(aten.ones_like.default, frames), squares)
    hop = arguments["hop_length"] or length // 4
    sums = (
        _trimmed(call, arguments, _overlapped(call, part, length, hop), -(-length // hop) * hop)
        for part in (call(aten.mul.Tensor, frames, window), weights)
    )
    signal: Node = call(aten.div.Tensor, *sums)
    if arguments["length"] is not None:
        missing = arguments["length"] - fake_value(signal).shape[-1]
        signal = call(aten.constant_pad_nd.default, signal, [0, missing]) if missing else signal
    return signal


def _overlapped(call: Callable[..., Node], frames: Node, length: int, hop: int) -> Node:
    """The sum of frames (..., T, length) that begin `hop` after each other; whole hops."""
    count = -(-length // hop)
    if count * hop != length:
        frames = call(aten.constant_pad_nd.default, frames, [0, count * hop - length])
    parts = []
    for place in range(count):
        part = call(aten.slice.Tensor, frames, -1, place * hop, (place + 1) * hop)
        moved = [0, 0, place, count - 1 - place]
        parts.append(call(aten.constant_pad_nd.default, part, moved))
    total = functools.reduce(functools.partial(call, aten.add.Tensor), parts)
    return call(aten.flatten.using_ints, total, -2, -1)


def _trimmed(call: Callable[..., Node], arguments: dict[str, Any], sums: Node, whole: int) -> Node:
    """Without the frames' own margins: those of `center`, and what fills the last hop."""
    margin = arguments["n_fft"] // 2 if arguments["center"] else 0
    behind = whole - arguments["n_fft"]
    if arguments["length"] is None:
        return call(aten.slice.Tensor, sums, -1, margin, -(behind + margin) or None)
    end = min(margin + arguments["length"], fake_value(sums).shape[-1] - behind)
    return call(aten.slice.Tensor, sums, -1, margin, end)


def _swap(editor: ProgramEditor, node: Node, value: Node, left: int, right: int) -> Node:
    """`value` with two axes, counted from the end, in each other's place."""
    order = list(range(fake_value(value).dim()))
    order[left], order[right] = order[right], order[left]
    if order == sorted(order):
        return value
    return editor.call(aten.permute.default, value, order, like=node)


def _refresh_strides(editor: ProgramEditor, fresh: list[Node]) -> None:
    """Recompute what follows `fresh`; a view that the new strides forbid becomes a reshape."""
    stale = set(fresh)
    for node in editor.graph.nodes:
        if "val" not in node.meta or not stale.intersection(node.all_input_nodes):
            continue
        before = node.meta["val"]
        try:
            editor.refresh(node)
        except (RuntimeError, ValueError):
            if node.target is not aten.view.default or is_written(node):
                raise
            node.target = aten.reshape.default
            editor.refresh(node)
        if not same_layout(before, node.meta["val"]):
            stale.add(node)
