"""Turns short-time Fourier transforms into matrix products with cosines and sines.

A cosine is even about the middle of a frame of N samples and a sine is odd, so that

    Re X[k] = sum_n (x[n] + x[N - n]) cos(2 pi k n / N)      n from 1 to N / 2
    Im X[k] = sum_n (x[n] - x[N - n]) (-sin(2 pi k n / N))

with x[0] added to every Re X[k], and x[N / 2], its own partner, counted once: two products with
half a frame each, half the multiplications of one with cosines and sines of a whole frame.

The inverse is the same sum with each bin but the first and the last counted twice, as it stands for
its conjugate too. What complex numbers are made and used for besides is carried on real and
imaginary planes (`transforms/graph/complex_planes.py`).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from transforms.graph.complex_planes import (
    ComplexProgram,
    Planes,
    RealForm,
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
_RFFT = (aten._fft_r2c.default, aten.fft_rfft.default)
_INVERSE = (aten._fft_c2r.default, aten.fft_irfft.default)
_ISTFT = aten.istft.default
_OTHERS = (
    aten._fft_c2c.default, aten.fft_fft.default, aten.fft_ifft.default, aten.fft_hfft.default,
    aten.fft_rfft2.default, aten.fft_rfftn.default, aten.fft_fft2.default, aten.fft_fftn.default,
    aten.fft_irfft2.default, aten.fft_irfftn.default, aten.fft_ihfft.default,
)  # fmt: skip
_NORM_NAMES = {None: 0, "backward": 0, "ortho": 1, "forward": 2}  # as _fft_r2c numbers them
_INVERSE_NORMS = {None: 2, "backward": 2, "ortho": 1, "forward": 0}


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
    basis and a sum of overlapping frames. The basis is formed in float64 from exactly reduced
    angles and rounded once. Complex numbers, of a spectrum, a constant, `view_as_complex`,
    `complex` or `polar`, are carried as real and imaginary planes, so that none is left.

    For finite signals the result differs from the FFT's by rounding. |z| is sqrt(re^2 + im^2),
    which overflows above 1.8e19 in float32 where the FFT's hypot does not.

    Refuses complex numbers that leave the program, are written in place or meet an operator without
    a real form (transforms of complex signals or of several axes), frames longer than
    `largest_frame`, or of a length that is not fixed, and signals that are not float32 or float64.

    Args:
        largest_frame: the longest transform, in samples; the basis has about its square elements.
    """

    name = "decompose_stft"
    summary = "Replaces STFT(x) with Unfold(x) @ FourierBasis"

    def __init__(self, *, largest_frame: int = 4096) -> None:
        self._largest_frame = largest_frame

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every transform that may be replaced, and what complex numbers can be."""
        for node in editor.calls(*_OTHERS):
            journal.refused(node, f"{node.target} is no transform of, or into, one real signal")
        sources = complex_sources(editor)
        for node in editor.calls(*_STFT, *_RFFT):
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
        for node in editor.calls(*_INVERSE):
            if not is_complex(node.all_input_nodes[0]):
                self._invert_real(editor, journal, node)
        carried = ComplexProgram(editor, sources, self._inverses(editor))
        for node, reason in carried.refused.items():
            journal.refused(node, reason)
        _refresh_strides(editor, carried.replace())
        for node in carried.sources:
            is_transform = node.target in (*_STFT, *_RFFT)
            how = "by products with a Fourier basis" if is_transform else "by its real planes"
            journal.changed(f"replaced {node.name} {how}")

    def _invert_real(self, editor: ProgramEditor, journal: Journal, node: Node) -> None:
        """Bins that are real: cosines alone."""
        reason = self._inverses(editor)[node.target].refusal(node)
        if reason:
            journal.refused(node, reason)
            return
        bins = node.all_input_nodes[0]
        with editor.graph.inserting_before(node):
            if not fake_value(bins).is_floating_point():
                given = fake_value(node).dtype
                bins = editor.call(aten._to_copy.default, bins, like=node, dtype=given)
            fresh = _irfft(editor, node, (bins,))
        editor.replace(node, fresh)
        _refresh_strides(editor, [fresh])
        journal.changed(f"replaced {node.name} by a product with a Fourier basis")

    def _refusal(self, node: Node) -> str | None:
        signal = fake_value(node.args[0])  # type: ignore[arg-type]
        if signal.dtype not in (torch.float32, torch.float64):
            return f"the signal is {signal.dtype}, not float32 or float64"
        reason = _stft_refusal(node) if node.target in _STFT else _rfft_refusal(node)
        return reason or self._size_refusal(_read(node).length)

    def _size_refusal(self, length: int) -> str | None:
        too_large = length > self._largest_frame
        return f"a basis for frames of {length} samples is too large" if too_large else None

    def _inverses(self, editor: ProgramEditor) -> dict[Any, RealForm]:
        """The transforms back that can be replaced, by operator."""

        def refusal(node: Node) -> str | None:
            reason = _istft_refusal(node) if node.target is _ISTFT else _irfft_refusal(node)
            return reason or self._size_refusal(_inverse_length(node))

        forms = dict.fromkeys(_INVERSE, RealForm(refusal, functools.partial(_irfft, editor)))
        return forms | {_ISTFT: RealForm(refusal, functools.partial(_istft, editor))}


# Reading


def _stft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    if arguments["align_to_window"]:
        return "its frames are aligned to the window"
    window = arguments["window"]
    if window is not None and fake_value(window).dtype != fake_value(arguments["self"]).dtype:
        return f"the window is {fake_value(window).dtype}, unlike the signal"
    return None


def _rfft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    dims = arguments["dim"]
    if isinstance(dims, (list, tuple)) and len(dims) != 1:
        return "it transforms several axes"
    length = fake_value(arguments["self"]).shape[_axis(arguments)]
    if not isinstance(length, int):
        return f"the length of its axis is not fixed ({length})"
    if arguments.get("n") not in (None, length):
        return "it pads or cuts the signal to another length"
    return None


def _axis(arguments: dict[str, Any]) -> int:
    dim = arguments["dim"]
    return int(dim[0] if isinstance(dim, (list, tuple)) else dim)


def _read(node: Node) -> _Transform:
    arguments = bound_arguments(node)
    if node.target in _STFT:
        length, norm = arguments["n_fft"], 1 if arguments["normalized"] else 0
        onesided = arguments["onesided"] is not False
    else:
        length = fake_value(arguments["self"]).shape[_axis(arguments)]
        norm = arguments.get("normalization", _NORM_NAMES[arguments.get("norm")])
        onesided = arguments.get("onesided", True)
    return _Transform(
        length=length,
        bins=length // 2 + 1 if onesided else length,
        scale=(1.0, length**-0.5, 1.0 / length)[norm],
    )


def _irfft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    dims = arguments["dim"]
    if isinstance(dims, (list, tuple)) and len(dims) != 1:
        return f"{node.name} transforms several axes"
    bins = fake_value(arguments["self"]).shape[_axis(arguments)]
    if not isinstance(bins, int) or not isinstance(_inverse_length(node), int):
        return f"the length of what {node.name} makes is not fixed"
    return None


def _istft_refusal(node: Node) -> str | None:
    arguments = bound_arguments(node)
    if arguments["return_complex"] or arguments["onesided"] is False:
        return f"{node.name} takes bins of both signs"
    dynamic = not isinstance(fake_value(arguments["self"]).shape[-1], int)
    if arguments["length"] is not None and dynamic:
        return f"{node.name} makes a signal of a given length of frames of a dynamic number"
    return None


def _inverse_length(node: Node) -> int:
    arguments = bound_arguments(node)
    if node.target is _ISTFT:
        return int(arguments["n_fft"])
    length = arguments.get("last_dim_size", arguments.get("n"))
    if length is None:
        length = 2 * (fake_value(arguments["self"]).shape[_axis(arguments)] - 1)
    return length  # type: ignore[no-any-return]


# Writing


def _spectrum(editor: ProgramEditor, node: Node) -> Planes:
    return _stft(editor, node) if node.target in _STFT else _rfft(editor, node)


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


def _rfft(editor: ProgramEditor, node: Node) -> Planes:
    arguments, transform = bound_arguments(node), _read(node)
    frames, axis = arguments["self"], _axis(arguments)
    frames = _swap(editor, node, frames, axis, -1)
    planes = _products(editor, node, frames, _Fold.of(transform.length, None), transform)
    return Planes(*(_swap(editor, node, plane, axis, -1) for plane in planes))


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


def _irfft(editor: ProgramEditor, node: Node, planes: tuple[Node, ...]) -> Node:
    arguments, length = bound_arguments(node), _inverse_length(node)
    axis = _axis(arguments)
    norm = arguments.get("normalization", _INVERSE_NORMS[arguments.get("norm")])
    scale = (1.0, length**-0.5, 1.0 / length)[norm]
    last = tuple(_swap(editor, node, plane, axis, -1) for plane in planes)
    return _swap(editor, node, _back(editor, node, last, length, scale), axis, -1)


def _back(
    editor: ProgramEditor, node: Node, planes: tuple[Node, ...], length: int, scale: float
) -> Node:
    """Bins (..., bins) to real samples (..., length); planes that are not there are zero."""
    bins = length // 2 + 1
    cosines, sines = _waves(torch.arange(bins), torch.arange(length), length)
    counts = torch.full((bins, 1), 2.0 * scale, dtype=torch.double)
    counts[0] = scale
    if length % 2 == 0:
        counts[-1] = scale
    parts = []
    bases = {"inverse_cosines": cosines * counts, "inverse_sines": -sines * counts}
    for (name, basis), plane in zip(bases.items(), planes, strict=False):
        value, rows = fake_value(plane), plane
        if (missing := bins - value.shape[-1]) != 0:
            rows = editor.call(aten.constant_pad_nd.default, plane, [0, missing], like=node)
        held = editor.add_constant(f"fourier_{name}_{length}", basis.to(value.dtype), learned=False)
        parts.append(editor.call(aten.matmul.default, rows, held, like=node))
    return functools.reduce(lambda a, b: editor.call(aten.add.Tensor, a, b, like=node), parts)


def _istft(editor: ProgramEditor, node: Node, planes: Planes) -> Node:
    """Frames, windowed again and added up, over the sum of the windows' squares."""
    arguments, length = bound_arguments(node), _inverse_length(node)
    call = functools.partial(editor.call, like=node)
    scale = length**-0.5 if arguments["normalized"] else 1.0 / length
    rows = Planes(*(_swap(editor, node, plane, -2, -1) for plane in planes))
    frames = _back(editor, node, rows, length, scale)
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
