"""Turns short-time Fourier transforms into matrix products with cosines and sines.

A cosine is even about the middle of a frame of N samples and a sine is odd, so that

    Re X[k] = sum_n (x[n] + x[N - n]) cos(2 pi k n / N)      n from 1 to N / 2
    Im X[k] = sum_n (x[n] - x[N - n]) (-sin(2 pi k n / N))

with x[0] added to every Re X[k], and x[N / 2], its own partner, counted once: two products with
half a frame each, half the multiplications of one with cosines and sines of a whole frame.

A target without complex numbers computes on two real tensors instead: the second half of this file
knows, operator by operator, what a consumer of a complex tensor does in terms of its real and its
imaginary plane. A consumer it does not know is a reason to leave the complex tensor alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from transforms.graph.aliasing import Aliasing
from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import guards_not_noted
from transforms.graph.layouts import same_layout
from transforms.graph.schemas import bound_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transforms.graph.editor import ProgramEditor


aten = torch.ops.aten

_STFT = (aten.stft.default, aten.stft.center)
_RFFT = (aten._fft_r2c.default, aten.fft_rfft.default)
_OTHERS = (
    aten.istft.default, aten._fft_c2r.default, aten._fft_c2c.default, aten.fft_fft.default,
    aten.fft_ifft.default, aten.fft_irfft.default, aten.fft_hfft.default, aten.fft_rfft2.default,
    aten.fft_rfftn.default, aten.fft_fft2.default, aten.fft_fftn.default,
)  # fmt: skip
_NORM_NAMES = {None: 0, "backward": 0, "ortho": 1, "forward": 2}  # as _fft_r2c numbers them


class _Transform(NamedTuple):
    """Real DFT of frames: bins k of X[k] = scale * sum_n window[n] x[n] exp(-2 pi i k n / N)."""

    length: int  # N
    bins: int
    scale: float


class DecomposeStft(GraphPass):
    """Replaces STFT(x) with Unfold(x) @ cos and @ -sin, and its complex consumers with real ones.

    `torch.stft` (with or without `center`), the real FFT that it decomposes to and
    `torch.fft.rfft` become two matrix products: the frames, which are windowed views of the signal
    without what the window makes zero, folded in the middle, times the Fourier basis, into which
    the normalisation is multiplied. The basis is formed in float64 from exactly reduced angles and
    rounded once. Magnitudes, powers, parts,
    conjugates, products and layout operators of the spectrum are carried out on real and imaginary
    planes, so that no complex number is left.

    For finite signals the result differs from the FFT's by rounding. |z| is sqrt(re^2 + im^2),
    which overflows above 1.8e19 in float32 where the FFT's hypot does not.

    Refuses spectra that leave the program as complex numbers or meet an operator without a real
    form (an angle, an inverse transform), frames longer than `largest_frame`, or of a length that
    is not fixed, and signals that are not float32 or float64.

    Args:
        largest_frame: the longest transform, in samples; the basis has about its square elements.
    """

    name = "decompose_stft"
    summary = "Replaces STFT(x) with Unfold(x) @ FourierBasis"

    def __init__(self, *, largest_frame: int = 4096) -> None:
        self._largest_frame = largest_frame

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace every transform that may be replaced."""
        for node in editor.calls(*_OTHERS):
            journal.refused(node, f"{node.target} is not a forward transform of a real signal")
        for node in editor.calls(*_STFT, *_RFFT):
            reason = self._refusal(node)
            if reason:
                journal.refused(node, reason)
                continue
            with editor.graph.inserting_before(node):
                planes = _stft(editor, node) if node.target in _STFT else _rfft(editor, node)
            if fake_value(node).is_complex():
                fresh = replace_complex(editor, node, planes)
            else:
                with editor.graph.inserting_before(node):
                    fresh = [editor.call(aten.stack.default, list(planes), -1, like=node)]
                editor.replace(node, fresh[0])
            _refresh_strides(editor, fresh)
            journal.changed(f"replaced {node.name} by products with a Fourier basis")

    def _refusal(self, node: Node) -> str | None:
        signal = fake_value(node.args[0])  # type: ignore[arg-type]
        if signal.dtype not in (torch.float32, torch.float64):
            return f"the signal is {signal.dtype}, not float32 or float64"
        reason = _stft_refusal(node) if node.target in _STFT else _rfft_refusal(node)
        if reason:
            return reason
        length = _read(node).length
        if length > self._largest_frame:
            return f"a basis for frames of {length} samples is too large"
        return refusal(node) if fake_value(node).is_complex() else None


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


# Writing


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


def _basis(fold: _Fold, transform: _Transform) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and negative sines of each bin in float64, (pairs, bins).

    The angle's multiple k n is reduced modulo N in integers, so that sines of whole turns are 0.
    """
    length, half = fold.length, fold.length // 2
    samples = torch.arange(fold.start, half + 1)
    turns = torch.outer(samples, torch.arange(transform.bins)) % length
    angles = turns.double() * (2.0 * math.pi / length)
    cosines = angles.cos() * transform.scale
    sines = torch.where(turns * 2 % length == 0, 0.0, angles.sin()) * -transform.scale
    cosines[samples * 2 == length] *= 0.5  # the middle of the frame is its own partner
    return cosines, sines


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
        if node.op != "call_function" or not stale.intersection(node.all_input_nodes):
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


class Planes(NamedTuple):
    """A complex tensor as two real ones of its shape."""

    real: Node
    imag: Node


# What moves elements without looking at them does the same to each plane.
_LAYOUT = {
    aten.alias.default, aten.clone.default, aten.contiguous.default, aten.detach.default,
    aten.expand.default, aten.flatten.using_ints, aten.mT.default, aten.narrow.default,
    aten.permute.default, aten.reshape.default, aten.select.int, aten.slice.Tensor,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.t.default,
    aten.transpose.int, aten.unflatten.int, aten.unsqueeze.default, aten.view.default,
    aten._unsafe_view.default,
}  # fmt: skip
_VIEWS = {aten.view.default, aten._unsafe_view.default}
_CONJUGATES = {aten.conj.default, aten._conj.default, aten.conj_physical.default}
_LINEAR = {aten.mul.Tensor, aten.div.Tensor}
_REAL_RESULTS = {
    aten.abs.default, aten.imag.default, aten.real.default, aten.sym_size.int,
    aten.view_as_real.default,
}  # fmt: skip


def refusal(node: Node) -> str | None:
    """Why the complex result of `node` cannot be carried as planes; None when it can.

    Every consumer is followed until the numbers are real again.
    """
    if is_written(node):
        return "its result, or a view of it, is written in place"
    consumers = _consumers(node)
    carried = {node, *(n for n in consumers if n.target not in _REAL_RESULTS)}
    reasons = (_user_refusal(user, carried) for user in consumers)
    return next((reason for reason in reasons if reason), None)


def replace_complex(editor: ProgramEditor, node: Node, planes: Planes) -> list[Node]:
    """Rewrite everything that consumes the complex `node` to consume `planes`.

    Call it only when `refusal` found nothing. The complex nodes lose their last user and go with
    the dead code.

    Returns:
        The real results that took the place of others; their strides may differ from those.
    """
    carried = {node: planes}
    fresh: list[Node] = []
    for user in _consumers(node):
        with editor.graph.inserting_before(user):
            if user.target in _REAL_RESULTS:
                fresh += _make_real(editor, user, carried[user.args[0]])  # type: ignore[index]
            else:
                carried[user] = _carry(editor, user, carried)
    return fresh


def _consumers(node: Node) -> list[Node]:
    """All that consumes `node`, or what is complex because of it, in graph order."""
    found: set[Node] = set()
    queue = [node]
    while queue:
        for user in queue.pop().users:
            if user not in found:
                found.add(user)
                if user.target not in _REAL_RESULTS:
                    queue.append(user)
    return [n for n in node.graph.nodes if n in found]


def _user_refusal(user: Node, carried: set[Node]) -> str | None:
    if user.op == "output":
        return "the program returns complex numbers made of it"
    strangers = [n for n in user.all_input_nodes if _is_complex(n) and n not in carried]
    if strangers:
        return f"{user.name} also takes {strangers[0].name}, which is complex"
    if user.target in _REAL_RESULTS | _LAYOUT | _CONJUGATES:
        return None
    if user.target not in _LINEAR:
        return f"{user.name} ({user.target}) has no form in real and imaginary planes here"
    if any(isinstance(a, complex) for a in user.args):
        return f"{user.name} takes a complex scalar"
    divides = user.target is aten.div.Tensor and user.args[1] in carried
    return f"{user.name} divides by complex numbers" if divides else None


def is_written(node: Node) -> bool:
    """Whether anything writes into the memory of `node`, itself or through a view."""
    # The analysis runs composite operators on fake values: it must not bind a dynamic dimension.
    with guards_not_noted(fake_value(node).fake_mode):
        return Aliasing(node.graph).is_written(node)


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


# Complex in, complex out


def _carry(editor: ProgramEditor, user: Node, carried: dict[Node, Planes]) -> Planes:
    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return editor.call(target, *args, like=user, **kwargs)

    operands = [carried[a] for a in user.args if isinstance(a, Node) and a in carried]
    if user.target in _CONJUGATES:
        return Planes(operands[0].real, call(aten.neg.default, operands[0].imag))
    if user.target is aten.mul.Tensor and len(operands) == 2:  # noqa: PLR2004
        left, right = operands  # (a + bi)(c + di) = (ac - bd) + (ad + bc)i
        ac, bd = (call(aten.mul.Tensor, *pair) for pair in zip(*operands, strict=True))
        ad = call(aten.mul.Tensor, left.real, right.imag)
        bc = call(aten.mul.Tensor, left.imag, right.real)
        return Planes(call(aten.sub.Tensor, ac, bd), call(aten.add.Tensor, ad, bc))

    # A view's strides need not exist for a plane; reshape copies where they do not.
    target = aten.reshape.default if user.target in _VIEWS else user.target

    def on(plane: str) -> Node:
        args = [
            getattr(carried[a], plane) if isinstance(a, Node) and a in carried else a
            for a in user.args
        ]
        return call(target, *args, **user.kwargs)

    return Planes(on("real"), on("imag"))


# Complex in, real out


def _make_real(editor: ProgramEditor, user: Node, planes: Planes) -> list[Node]:
    """Replace a consumer that yields real numbers; return what took its place."""
    if user.target is aten.abs.default:
        return _magnitude(editor, user, planes)
    if user.target in {aten.real.default, aten.imag.default}:
        fresh = planes.real if user.target is aten.real.default else planes.imag
    elif user.target is aten.sym_size.int:
        fresh = editor.call(aten.sym_size.int, planes.real, user.args[1], like=user)
    else:
        fresh = editor.call(aten.stack.default, list(planes), -1, like=user)
    editor.replace(user, fresh)
    return [fresh]


def _magnitude(editor: ProgramEditor, user: Node, planes: Planes) -> list[Node]:
    """|z| = sqrt(re^2 + im^2); where it is only squared again, no root is taken."""
    squares = [editor.call(aten.mul.Tensor, plane, plane, like=user) for plane in planes]
    power = editor.call(aten.add.Tensor, *squares, like=user)
    fresh = [power]
    for square in _squares(user.users):
        editor.replace(square, power)
    if user.users:
        root = editor.call(aten.sqrt.default, power, like=user)
        editor.replace(user, root)
        fresh.append(root)
    return fresh


def _squares(users: Iterable[Node]) -> list[Node]:
    return [
        u
        for u in users
        if u.target is aten.square.default
        or (u.target is aten.pow.Tensor_Scalar and u.args[1] == 2)  # noqa: PLR2004
        or (u.target is aten.mul.Tensor and u.args[0] is u.args[1])
    ]
