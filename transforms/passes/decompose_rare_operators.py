"""Decompose operators that no runtime has a kernel for into ones that every runtime has.

Each function computes one call, as PyTorch's documentation of the function named defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx import Node
from torch.nn.modules.linear_cross_entropy import (
    _linear_cross_entropy_batch_chunked as chunked_loss,
)

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import as_torch_does
from transforms.graph.traced import write
from transforms.passes.linear_algebra import LINEAR_ALGEBRA, in_equal_batches, needs_factors
from transforms.passes.resizing import (
    are_equal,
    is_kept,
    output_sizes,
    resize_linearly,
    resize_to_nearest,
)

aten = torch.ops.aten

_IMAGE_AXES = 4
_NO_INDEX = 2**31 - 1  # outside every axis
_SUM, _MEAN, _MAX = range(3)  # as torch.nn.functional.embedding_bag numbers them
_ZEROS, _BORDER, _REFLECTION = range(3)  # as torch.nn.functional.grid_sample numbers them
_NEAREST, _BICUBIC = 1, 2  # likewise
_MEAN_OF_LOSSES = 1  # as at::Reduction numbers it
_LOGIC = (
    aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims,
)  # fmt: skip
_OF_ONE_DTYPE = (
    aten.searchsorted.Tensor, aten.bucketize.Tensor, aten.gcd.default, aten.lcm.default
)  # fmt: skip
_LINEAR = (
    aten.upsample_linear1d.vec, aten.upsample_linear1d.default,
    aten.upsample_trilinear3d.vec, aten.upsample_trilinear3d.default,
)  # fmt: skip

_BAGS = (
    aten.embedding_bag.default, aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
)  # fmt: skip

# Operators that Inductor computes wrongly, or not at all, in these dtypes.
_OF_DTYPES: dict[Any, tuple[torch.dtype, ...]] = {
    **dict.fromkeys(_LOGIC, (torch.uint8,)),
    aten.erf.default: (torch.float16, torch.bfloat16, torch.float32),
    aten.atanh.default: (torch.float16, torch.bfloat16, torch.float32, torch.float64),
    aten.pow.Tensor_Scalar: (torch.bfloat16, torch.float32, torch.float64),
}
_ROOT = -0.5  # an exponent


class DecomposeRareOperators(GraphPass):
    """Replaces calls of rare operators with sorts, gathers, sums and pointwise operators.

    The program is retraced, so if it has such an operator, all its nodes are new.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Decompose all such calls."""
        _check_indices(editor, journal)
        _sum_halves(editor, journal)
        found = [
            (node.name, node.target)
            for node in editor.calls(*_WRITTEN_OUT)
            if needs_factors(node) and not _is_common(node)
        ]
        if not found:
            return
        editor.decompose(_WRITTEN_OUT)
        for name, operator in found:
            journal.changed(f"wrote out {name}, {operator}")


# Operators that refuse negative indices in eager PyTorch, where Inductor counts them from the end,
# and the position of the argument that holds the indices.
_INDEX_OF = {
    **dict.fromkeys((op.default for op in (aten.index_select, aten.index_add, aten.index_copy)), 2),
    **dict.fromkeys((aten.max_unpool2d.default, aten.max_unpool3d.default), 1),
    **dict.fromkeys((aten.embedding_bag.padding_idx, *_BAGS), 1),
    aten.repeat_interleave.Tensor: 0,
    aten.repeat_interleave.self_Tensor: 1,
}


def _check_indices(editor: ProgramEditor, journal: Journal) -> None:
    """Make a run fail on indices that torch refuses."""
    for node in editor.calls(*_INDEX_OF):
        operator: Any = node.target
        place, size = _INDEX_OF[operator], node.kwargs.get("output_size")
        known = editor.constant(node.args[place])
        if size is None and known is not None and bool((known >= 0).all()):
            continue
        check: Any = _without_negative if size is None else _checked_repeats
        limit = node.args[2] if "max_unpool" in operator.name() else size
        node.update_arg(place, write(editor, check, node.args[place], limit, like=node))
        journal.changed(f"{node.name} refuses the indices that torch does")


_HALVES = (torch.float16, torch.bfloat16)
_SCATTERED = (aten.scatter_add.default, aten.scatter_reduce.two, aten.index_add.default)


def _sum_halves(editor: ProgramEditor, journal: Journal) -> None:
    """Scatter halves in float32 where eager does; Inductor rounds after every addition."""
    for node in editor.calls(*_SCATTERED):
        if fake_value(node).dtype in _HALVES and _is_rounded_once(node):
            run = partial(_scattered, node.target)
            editor.replace(node, write(editor, run, node.args, node.kwargs, like=node))
            journal.changed(f"{node.name} sums in float32")


def _is_rounded_once(node: Node) -> bool:
    """Return whether eager rounds sums once, at the end; `index_add` does along the outer axes."""
    if node.target is not aten.index_add.default:
        return not {"amax", "amin"}.intersection(map(str, node.args[4:]))
    axes = fake_value(node).dim()
    return axes > 1 and node.args[1] in {0, -1, axes - 1, -axes} and not node.kwargs.get("alpha")


def _scattered(operator: Any, args: Any, kwargs: Any) -> Any:
    self, dim, index, source, *others = args
    return operator(self.float(), dim, index, source.float(), *others, **kwargs).to(self.dtype)


def _without_negative(index: Tensor, plane: Sequence[int] | None) -> Tensor:
    """Replace indices below 0, or beyond a plane of such sizes, by one outside every axis."""
    outside = (index < 0) | (index >= math.prod(plane)) if plane else index < 0
    return index.masked_fill(outside, _NO_INDEX)


def _checked_repeats(repeats: Tensor, size: int) -> Tensor:
    fits = (repeats >= 0).all() & (repeats.sum() == size)
    aten._assert_async.msg(fits, "repeats are negative, or do not make the output's size")
    return repeats


def _is_common(node: Node) -> bool:
    """Return whether Inductor has code for the operands: images, bool logic, fixed sizes."""
    first, *others = (fake_value(n) for n in node.all_input_nodes or [node])
    if node.target in {aten.diagonal.default, aten.diag.default, aten.trace.default}:
        return _has_diagonal(first)
    if node.target in _OF_ONE_DTYPE:
        return all(first.dtype == other.dtype for other in others[:1])  # the sorter is no operand
    if dtypes := _OF_DTYPES.get(node.target):
        is_other = node.target is aten.pow.Tensor_Scalar and bool(node.args[1] != _ROOT)
        return is_other or first.dtype not in dtypes
    if node.target in _POOLS:
        return _suits_inductor(node.target, first, node.args[1])
    if node.target is aten.cdist.default:
        return all(surely_equal(first.shape[:-2], other.shape[:-2]) for other in others)
    return node.target is aten.take.default and bool(others[-1:] and others[-1].dim() > 0)


def _logic_of_bytes(operator: Any, self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Return uint8 where the operand is uint8, as torch does."""
    if self.dtype != torch.uint8:
        return NotImplemented
    return operator(self != 0, *args, **kwargs).to(torch.uint8)


def _has_diagonal(self: Tensor) -> bool:
    return self.dim() == 1 or all(isinstance(size, int) for size in self.shape)


def _diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Take elements by position, where the smaller of two sizes is not known before the run."""
    if _has_diagonal(self):
        return NotImplemented
    rows = self.movedim((dim1, dim2), (-2, -1))
    down, right = max(-offset, 0), max(offset, 0)
    length: Any = torch.sym_min(rows.shape[-2] - down, rows.shape[-1] - right)  # type: ignore[no-untyped-call]
    place = torch.arange(length, device=self.device)
    return rows[..., place + down, place + right]


def _searchsorted(sorted_sequence: Tensor, self: Tensor | float, **how: Any) -> Any:
    """Search in the dtype to which torch promotes both; a Python number takes the sequence's."""
    dtype = torch.result_type(sorted_sequence, self)
    if not isinstance(self, Tensor):
        self = sorted_sequence.new_full((), self, dtype=dtype)
    elif self.dtype == dtype == sorted_sequence.dtype:
        return NotImplemented
    return torch.searchsorted(sorted_sequence.to(dtype), self.to(dtype), **how)


def _bucketize(self: Tensor | float, boundaries: Tensor, **how: Any) -> Any:
    return _searchsorted(boundaries, self, **how)


def _distances(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """Compute torch.cdist of inputs whose batches may differ."""
    if surely_equal(x1.shape[:-2], x2.shape[:-2]):
        return NotImplemented
    return aten.cdist(*in_equal_batches(x1, x2), p, compute_mode)


def _promoted(operator: Any, self: Tensor, other: Tensor) -> Any:
    if self.dtype == other.dtype:
        return NotImplemented
    dtype = torch.result_type(self, other)
    return operator(self.to(dtype), other.to(dtype))


def _pdist(self: Tensor, p: float = 2) -> Tensor:
    """Return the distances of all pairs of rows, without a matrix product, which would cancel."""
    rows, others = torch.triu_indices(self.shape[0], self.shape[0], 1)
    distances: Tensor = aten._cdist_forward(self, self, p, 2)
    odd = torch.isnan(self[rows] - self[others]).any(-1)  # cdist's maximum distance ignores NaN
    return torch.where(odd, torch.nan, distances[rows, others])


def _addbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    if not self.dtype.is_floating_point:
        beta, alpha = int(beta), int(alpha)
    product = torch.bmm(batch1, batch2).sum(0, dtype=self.dtype) * alpha
    return product if beta == 0 else product + self * beta


def _index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return the result of scattering whole slices."""
    if self.dim() == 0:
        return _index_reduce(
            self[None], 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        )[0]
    sizes = [1] * self.dim()
    sizes[dim] = -1
    wide = index.reshape(sizes).expand(source.shape)
    return self.scatter_reduce(dim, wide, source, reduce, include_self=include_self)


def _trilinear(  # noqa: PLR0917 - PyTorch's own list
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,  # noqa: ARG001
) -> Tensor:  # fmt: skip
    """Multiply three factors, each expanded by axes of size 1, and sum over `sumdim`."""
    factors = (i1, expand1), (i2, expand2), (i3, expand3)
    product = reduce(torch.mul, (reduce(torch.unsqueeze, axes, part) for part, axes in factors))
    return product.sum(list(sumdim)) if sumdim else product


def _windows(values: Tensor, axis: int, wanted: int, rest: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return an axis' values in each window (torch.nn.AdaptiveAvgPool2d), and `rest` elsewhere.

    Also return the first position of each window and the one after its last.
    """
    number, size = torch.arange(wanted), values.shape[axis]
    first, end = number * size // wanted, ((number + 1) * size - 1) // wanted + 1
    place = torch.arange(size)
    inside = (place >= first[:, None]) & (place < end[:, None])
    return torch.where(inside, values.movedim(axis, -1)[..., None, :], rest), first, end


def _adaptive_average(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average along one axis after another: windows of images and volumes are boxes."""
    values = self.to(torch.promote_types(self.dtype, torch.float32))
    for axis, wanted in enumerate(output_size, -len(output_size)):
        boxes, first, end = _windows(values, axis, wanted, 0.0)
        values = (boxes.sum(-1) / (end - first)).movedim(-1, axis)
    return values.to(self.dtype)


def _adaptive_maximum(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return maxima and positions: a box's last NaN, else the first of equal values."""
    sizes = self.shape[-len(output_size) :]
    where = torch.arange(math.prod(sizes)).reshape(sizes).expand(self.shape)
    for axis in range(-1, -len(output_size) - 1, -1):
        boxes, first, _ = _windows(self, axis, output_size[axis], -torch.inf)
        largest, place = boxes.max(-1)
        place = torch.maximum(place, first)  # if all are -inf
        nan = torch.isnan(boxes)
        last = (nan * torch.arange(nan.shape[-1])).amax(-1)
        place = torch.where(nan.any(-1), last, place)
        where = where.movedim(axis, -1).gather(-1, place).movedim(-1, axis)
        self = largest.movedim(-1, axis)
    return self, where


def _of_rows(choose: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """Make an operator that selects a value of each row accept a tensor without axes."""

    def chosen(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        if self.dim() == 0:
            return self.clone(), torch.zeros_like(self, dtype=torch.int64)
        values, places = choose(self, dim)
        return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))

    return chosen


def _median(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the lower median of each row, or the first NaN of a row that has one."""
    middle = (self.shape[dim] + 1) // 2
    values, places = aten.kthvalue.default(self, middle, dim, True)
    if self.dtype.is_floating_point:
        nan = torch.isnan(self)
        first = nan.to(torch.int64).argmax(dim, True)
        some = nan.any(dim, True)
        values = torch.where(some, self.gather(dim, first), values)
        places = torch.where(some, first, places)
    return values, places


def _nanmedian(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the lower median of a row's numbers other than NaN; NaN if there are none."""
    if not self.dtype.is_floating_point:
        return _median(self, dim)
    numbers = (~torch.isnan(self)).sum(dim, True)
    ordered, order = torch.sort(self, stable=True, dim=dim)  # NaN is sorted last
    middle = ((numbers - 1) // 2).clamp(min=0)
    return ordered.gather(dim, middle), order.gather(dim, middle)


def _mode(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the most frequent value of each row, the smallest of ties, and its last position."""
    axis = dim % self.dim()
    rows, order = torch.sort(self.movedim(axis, -1), stable=True, dim=-1)
    place = torch.arange(rows.shape[-1], device=self.device).expand_as(rows)
    same = rows[..., 1:] == rows[..., :-1]
    begins = place * (1 - torch.nn.functional.pad(same.to(place.dtype), (1, 0)))
    length = place - begins.cummax(-1).values  # of the run so far, minus one
    best = length.argmax(-1, True)
    return rows.gather(-1, best).movedim(-1, axis), order.gather(-1, best).movedim(-1, axis)


def _histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:  # noqa: A002
    """Count the elements in each of `bins` equal parts of the range; the last includes its end."""
    flat = self.reshape(-1)
    low, high = (torch.full((), float(end), dtype=self.dtype) for end in (min, max))
    if min == max and flat.shape[0] > 0:
        low, high = flat.min(), flat.max()
        aten._assert_async.msg((high - high + low - low) == 0, "the range of histc is not finite")
    single = low == high
    low, high = torch.where(single, low - 1, low), torch.where(single, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    part = ((flat - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    part = torch.where(inside, part, bins)
    ones = torch.ones_like(flat)
    return self.new_zeros(bins + 1).scatter_add(0, part, ones)[:bins]


def _embedding_bag(  # noqa: PLR0917 - PyTorch's own list
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,  # noqa: ARG001
    mode: int = _SUM, sparse: bool = False, per_sample_weights: Tensor | None = None,  # noqa: ARG001
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return sums, means or maxima of rows for each bag; a bag begins at each offset.

    Rows after the last offset belong to the last bag, but are left out of sums that eager computes
    by its fast kernel.
    """
    starts = offsets[:-1] if include_last_offset else offsets
    bags, places = starts.shape[0], torch.arange(indices.shape[0], dtype=starts.dtype)
    ascend = (offsets[1:] >= offsets[:-1]).all() & (offsets[:1] == 0).all()
    fit = ascend & (offsets[-1:] <= indices.shape[0]).all()
    aten._assert_async.msg(fit, "offsets do not ascend from 0 to the number of indices")
    inside = ((indices >= 0) & (indices < weight.shape[0])).all()
    aten._assert_async.msg(inside, "an index is outside the weight")
    bag = torch.searchsorted(starts, places, right=True) - 1
    counted = indices != padding_idx
    number = bag.new_zeros(bags).index_add(0, bag, counted.to(bag.dtype))
    fast = include_last_offset and padding_idx < 0 and weight.dtype != torch.float64
    read = places < offsets[-1:] if fast and mode != _MAX else counted
    rows = weight[indices].to(torch.promote_types(weight.dtype, torch.float32))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    rows = torch.where(read[:, None], rows, -torch.inf if mode == _MAX else 0.0)
    empty = rows.new_zeros(bags, weight.shape[1])
    if mode == _MAX:
        first = counted.cumsum(0) == (number.cumsum(0) - number + 1)[bag]
        rows = torch.where(torch.isnan(rows) & ~first[:, None], -torch.inf, rows)
        wide = bag[:, None].expand_as(rows)
        largest = empty.scatter_reduce(0, wide, rows, "amax", include_self=False)
        result = torch.where((number > 0)[:, None], largest, 0.0)
    else:
        result = empty.index_add(0, bag, rows)
        if mode == _MEAN:
            result = result / number.clamp(min=1).to(result.dtype)[:, None]
    return result.to(weight.dtype), bag, number, bag.new_zeros(0)


def _padded_bag(weight: Tensor, *how: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same but ignore the row `padding_idx`, counted from the end if negative."""
    row = -1 if how[-1] is None else how[-1] % weight.shape[0]
    return _embedding_bag(weight, *(*how[:-1], row))


def _nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Return the positions of the first `size` nonzero elements, padded with `fill_value`."""
    place = torch.searchsorted((self != 0).reshape(-1).cumsum(0), torch.arange(1, size + 1))
    found, axes = place < self.numel(), [place.new_empty(size, 0)]
    for extent in reversed(self.shape):
        axes.insert(0, (place % torch.sym_max(extent, 1))[:, None])  # type: ignore[no-untyped-call]
        place = place // torch.sym_max(extent, 1)  # type: ignore[no-untyped-call]
    return torch.where(found[:, None], torch.cat(axes, 1), fill_value)


def _grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool  # noqa: A002
) -> Tensor:  # fmt: skip
    """Sample images or volumes at the points of a grid, (x, y) or (x, y, z) along its last axis."""
    batch, channels, *sizes = input.shape
    elements, is_image = input.reshape(batch, channels, -1), len(sizes) == _IMAGE_AXES - 2
    none = torch.zeros((), dtype=input.dtype)

    def corner(places: Sequence[Tensor], share: Tensor | float = 1.0) -> Tensor:
        inside = torch.ones_like(places[0], dtype=torch.bool)
        offset = torch.zeros_like(places[0], dtype=torch.int64)
        for place, size in zip(places, sizes, strict=True):
            within = (place >= 0) & (place < size)  # false for NaN
            inside = inside & within
            offset = offset * size + torch.where(within, place, 0).to(torch.int64)
        flat = offset.reshape(batch, 1, -1).expand(-1, channels, -1)
        found = elements.gather(2, flat).reshape(batch, channels, *grid.shape[1:-1])
        if is_image:  # a NaN weight counts outside as well
            return torch.where(inside[:, None], found, 0.0) * share
        return torch.where(inside[:, None], found * share, 0.0)

    def brought_inside(place: Tensor, size: Any) -> Tensor:
        return _inside(place, size, padding_mode, align_corners, is_image=is_image)

    scaled = [
        _scaled(at, size, align_corners, is_image=is_image)
        for at, size in zip(reversed(grid.unbind(-1)), sizes, strict=True)
    ]
    if interpolation_mode == _BICUBIC:
        rows, columns = (
            [
                (brought_inside(place.floor() + step, size), share)
                for step, share in enumerate(_cubic_shares(place - place.floor()), -1)
            ]
            for place, size in zip(scaled, sizes, strict=True)
        )
        lines = [[corner([y, x], share) for x, share in columns] for y, _ in rows]
        return sum((sum(line) * share for line, (_, share) in zip(lines, rows, strict=True)), none)
    at = [brought_inside(place, size) for place, size in zip(scaled, sizes, strict=True)]
    if interpolation_mode == _NEAREST:
        return corner([place.round() for place in at])
    low = [place.floor() for place in at]
    result = none
    for choice in range(2 ** len(sizes)):
        upper = [choice >> axis & 1 for axis in range(len(sizes))]
        places = [place + step for place, step in zip(low, upper, strict=True)]
        share = torch.ones((), dtype=input.dtype)
        for place, begin, step in zip(at, low, upper, strict=True):
            share = share * (place - begin if step else begin + 1 - place)
        result = result + corner(places, share[:, None])
    return result


def _cubic_shares(above: Tensor) -> list[Tensor]:
    """Return the weights of four neighbours, given a place's distance above the second."""
    near = [_cubic_near(distance, -0.75) for distance in (above, 1 - above)]
    far = [_cubic_far(distance, -0.75) for distance in (above + 1, 2 - above)]
    return [share[:, None] for share in (far[0], *near, far[1])]


def _scaled(at: Tensor, size: int, align_corners: bool, *, is_image: bool) -> Tensor:
    """Scale a place from [-1, 1] to elements; a volume's overflows where eager's does."""
    if align_corners:
        return (at + 1) * ((size - 1) / 2)
    return (at + 1) * (size / 2) - 0.5 if is_image else ((at + 1) * size - 1) / 2


def _inside(
    place: Tensor, size: Any, padding_mode: int, align_corners: bool, *, is_image: bool
) -> Tensor:
    """Move a place inside as the mode says; NaN becomes an image's first, a volume's last."""
    if padding_mode == _ZEROS:
        return place
    if padding_mode == _REFLECTION:
        low, span = (0.0, torch.sym_max(size - 1, 1)) if align_corners else (-0.5, size)  # type: ignore[no-untyped-call]
        away = (place - low).abs()
        if is_image:
            rest = away - (away / (2 * span)).trunc() * (2 * span)
            place = torch.minimum(rest, 2 * span - rest) + low
        else:
            rest, turns = away % span, (away / span).floor()
            place = torch.where(turns % 2 == 0, rest, span - rest) + low
    if is_image:
        return torch.where(place >= 0, place.clamp(max=size - 1), 0.0)
    return torch.where(place <= size - 1, place.clamp(min=0), size - 1)


def _resize(  # noqa: PLR0917
    kernel: Callable[[Tensor], Tensor], reach: int, images: Tensor, output_size: Sequence[int],
    align_corners: bool, scales_h: float | None = None, scales_w: float | None = None, *,
    smooth: bool = True,
) -> Tensor:  # fmt: skip
    """Resize along the width and then the height, with antialiasing if `smooth`.

    Each element of the result is a mean of the elements within `reach` steps of the (wider) grid,
    weighted by a kernel (PIL.Image.resize; torch.nn.functional.interpolate, antialias).
    """
    result = images
    for axis, factor in ((-1, scales_w), (-2, scales_h)):
        size: Any = images.shape[axis]
        wanted = output_size[axis]
        if is_kept(size, wanted, factor):
            continue
        if align_corners:
            step = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
        else:
            step = 1 / factor if factor is not None and factor > 0 else size / wanted
        kind = images.dtype if images.is_floating_point() else torch.float64
        grid = torch.arange(wanted, dtype=kind)
        centre = step * grid + 0.5 if align_corners and not smooth else step * (grid + 0.5)
        wide = step if smooth else 1.0
        place, weight, inside = _taps(kernel, reach, wide, size, centre, smooth=smooth)
        rows = result.movedim(axis, -1)[..., place]
        if images.is_floating_point():
            made = torch.where(inside, rows * weight, 0.0).sum(-1)
        else:
            made = _mean_of_bytes(rows, weight)
        if not isinstance(size, int):
            kept = result.movedim(axis, -1)[..., torch.arange(wanted).clamp(max=size - 1)]
            made = torch.where(are_equal(size, wanted), kept, made)
        result = made.movedim(-1, axis)
    return result


def _resize_bytes(
    kernel: Callable[[Tensor], Tensor], reach: int, images: Tensor, size: Any,
    align_corners: bool, *scales: Any,
) -> Any:  # fmt: skip
    """Resize bytes without antialiasing; the scales are two numbers, or the one list of `.vec`."""
    if images.dtype is not torch.uint8:
        return NotImplemented
    size, factors = output_sizes(images, size, scales)
    return _resize(kernel, reach, images, size, align_corners, *factors, smooth=False)


def _resize_bilinearly(images: Tensor, *how: Any) -> Any:
    if images.dtype is torch.uint8:
        return _resize_bytes(_triangle, 1, images, *how)
    return resize_linearly(images, *how)


def _mean_of_bytes(rows: Tensor, weight: Tensor) -> Tensor:
    """Weight bytes by 15-bit integers, as eager does."""
    bits = (32767.5 / weight.max()).log2().ceil().to(torch.int32) - 1
    whole = (weight * 2.0**bits + weight.sign() / 2).to(torch.int32)
    total = (rows.to(torch.int32) * whole).sum(-1, dtype=torch.int32) + (1 << (bits - 1))
    return (total >> bits).clamp(0, 255).to(torch.uint8)


def _taps(
    kernel: Callable[[Tensor], Tensor], reach: int, step: float, size: int, centre: Tensor, *,
    smooth: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return, per element of the result, the elements to read, their weights and which count.

    Weights sum to 1. Elements outside are left out if `smooth`, and clamped to the edge otherwise.
    """
    widened = torch.sym_max(step, 1.0)  # type: ignore[no-untyped-call]
    support = reach * widened
    first = (centre - support + 0.5).floor().to(torch.int64)
    most = torch.sym_int(support) * 2 + 3 * smooth  # type: ignore[no-untyped-call]
    place = first[:, None] + torch.arange(most)
    weight = kernel((place.to(centre.dtype) - centre[:, None] + 0.5) / widened)
    near = place.clamp(0, size - 1)
    if smooth:
        end = (centre + support + 0.5).to(torch.int64)[:, None]
        inside = (near == place) & (place < end)
        weight = torch.where(inside, weight, 0.0)
        return near, weight / weight.sum(1, True), inside
    same = near[:, :, None] == near[:, None]
    once = ~same.tril(-1).any(-1)
    return near, torch.where(once, (weight[:, None] * same).sum(-1), 0.0), once


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor, a: float) -> Tensor:
    """Compute Keys' kernel; Pillow uses a = -1/2."""
    x = x.abs()
    far = torch.where(x < 2, _cubic_far(x, a), 0.0)  # noqa: PLR2004
    return torch.where(x < 1, _cubic_near(x, a), far)


def _cubic_near(x: Tensor, a: float) -> Tensor:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _cubic_far(x: Tensor, a: float) -> Tensor:
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _linear_cross_entropy(  # noqa: PLR0917 - PyTorch's own list
    rows: Tensor, linear_weight: Tensor, target: Tensor, linear_bias: Tensor | None,
    weight: Tensor | None, reduction: str, ignore_index: int, label_smoothing: float,
    *training: Any,  # noqa: ARG001 - chunks, and gradients that no artifact has
) -> tuple[Tensor, ...]:  # fmt: skip
    """Compute all rows at once; the empty tensors stand for gradients that were not requested."""
    scores = torch.nn.functional.linear(rows, linear_weight, linear_bias)
    loss = torch.nn.functional.cross_entropy(
        scores, target, weight, ignore_index=ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip
    return loss, rows.new_empty(0, 0), rows.new_empty(0, 0), rows.new_empty(0)


def _multilabel_margins(
    self: Tensor, target: Tensor, reduction: int = _MEAN_OF_LOSSES
) -> tuple[Tensor, Tensor]:
    """Compute the hinge loss of each label before the first -1 against all other classes.

    This follows torch's kernel (LossMultiLabelMargin.cpp), which leaves NaN out. torch's
    decomposition treats labels after a -1 as class 0.
    """
    x, labels = torch.atleast_2d(self), torch.atleast_2d(target)  # type: ignore[no-untyped-call]
    inside = ((labels >= -1) & (labels < x.shape[1])).all()
    aten._assert_async.msg(inside, "a label of multilabel_margin_loss is outside the classes")
    counted = (labels == -1).cumsum(1) == 0
    classes = torch.arange(x.shape[1])
    is_label = ((classes == labels[..., None]) & counted[..., None]).any(1)
    margin = 1 - x.gather(1, torch.where(counted, labels, 0))[..., None] + x[:, None]
    pays = counted[..., None] & ~is_label[:, None] & (margin > 0)
    loss = torch.where(pays, margin, 0).sum((1, 2)) / x.shape[1]
    reduced = {0: loss.reshape(target.shape[:-1]), _MEAN_OF_LOSSES: loss.mean(), 2: loss.sum()}
    return reduced[reduction], is_label.to(self.dtype).reshape(target.shape)


def _binary_cross_entropy(self: Tensor, target: Tensor, *given: Any) -> Any:
    for each in (self, target):
        inside = ((each >= 0) & (each <= 1)).all()
        aten._assert_async.msg(inside, "binary_cross_entropy: an element is outside 0 to 1")
    return _LOSS(self, target, *given)


def _fake_quantize(  # noqa: PLR0917 - PyTorch's own list, and what fits
    self: Tensor, scale: Any, zero: Any, low: int, high: int,
    fits: Callable[[Tensor], Tensor] = lambda values: ~values.isnan(),
) -> Any:  # fmt: skip
    """Compute fake_quantize_per_tensor_affine; aten's kernels multiply by 1 / scale in float32."""
    scale = scale if isinstance(scale, Tensor) else torch.full((), scale)
    wide = self.to(torch.promote_types(self.dtype, torch.float32))
    values = (wide * (1 / scale)).round() + zero
    return ((torch.where(fits(values), values, low).clamp(low, high) - zero) * scale).to(self)


def _fake_quantize_rows(  # noqa: PLR0917 - PyTorch's own list
    self: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int
) -> Any:
    """Compute fake_quantize_per_channel_affine; values outside int64 become the lowest."""
    if zero.is_floating_point():
        return NotImplemented
    shape = [-1 if each == axis % self.dim() else 1 for each in range(self.dim())]
    given = self, scale.view(shape), zero.view(shape), low, high
    return _fake_quantize(*given, lambda values: values.abs() < 2.0**63)


# The Maclaurin series of erf(x) / x in x^2, at most 2 float32 ulps off for |x| below one half.
_ERF = tuple(2 / math.sqrt(math.pi) * (-1) ** n / math.factorial(n) / (2 * n + 1) for n in range(7))


def _erf(self: Tensor) -> Any:
    """Compute erf; Inductor's vectors compute 1 - (1 - erf(x)), which is 0 for tiny numbers."""
    if self.dtype not in _OF_DTYPES[aten.erf.default]:
        return NotImplemented
    x = self.to(torch.float32)
    square, series = x * x, torch.full_like(x, _ERF[-1])
    for factor in reversed(_ERF[:-1]):
        series = series * square + factor
    return torch.where(x.abs() < 1 / 2, x * series, 1 - torch.erfc(x)).to(self.dtype)


def _power(self: Tensor, exponent: Any) -> Any:
    """Return x ** -0.5 as eager does, also for -0 and -inf, where C's pow differs."""
    is_root = exponent == _ROOT and self.dtype in _OF_DTYPES[aten.pow.Tensor_Scalar]
    return self.rsqrt() if is_root else NotImplemented


def _atanh(self: Tensor) -> Any:
    """Compute atanh; the logarithm of Inductor's (1 + x) / (1 - x) is 0 for tiny numbers."""
    if not self.is_floating_point():
        return NotImplemented
    x = self.to(torch.promote_types(self.dtype, torch.float32))
    return ((x.log1p() - (-x).log1p()) / 2).to(self.dtype)


def _frequencies(n: int, d: float = 1.0, **given: Any) -> Tensor:
    """Return the frequencies of the bins in the order of torch.fft.fftfreq."""
    return ((torch.arange(n, **given) + n // 2) % n - n // 2) * (1.0 / (n * d))


# Inductor has code for these if sizes are fixed, and takes dynamic sizes for the example's.
_POOLS: dict[Any, Callable[..., Any]] = {
    aten.adaptive_avg_pool1d.default: _adaptive_average,
    aten.adaptive_avg_pool2d.default: _adaptive_average,
    aten._adaptive_avg_pool2d.default: _adaptive_average,
    aten.adaptive_max_pool1d.default: _adaptive_maximum,
    aten.adaptive_max_pool2d.default: _adaptive_maximum,
}


def _suits_inductor(operator: Any, images: Tensor, wanted: Any) -> bool:
    """Return whether a pool's sizes are fixed, or it averages everything to one element."""
    fixed = all(isinstance(size, int) for size in (*images.shape[-2:], *wanted))
    whole = all(isinstance(size, int) and size == 1 for size in wanted)
    return fixed or (whole and _POOLS[operator] is _adaptive_average)


def _if_dynamic(operator: Any, self: Tensor, output_size: Sequence[int]) -> Any:
    suits = _suits_inductor(operator, self, output_size)
    return NotImplemented if suits else _POOLS[operator](self, output_size)


_LOSS = get_decompositions([aten.binary_cross_entropy])[aten.binary_cross_entropy.default]
_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    **{operator: partial(_logic_of_bytes, operator) for operator in _LOGIC},
    aten.diagonal.default: _diagonal,
    aten.diag.default: _diagonal,
    aten.trace.default: lambda self: self.diagonal().sum(),
    aten.searchsorted.Tensor: _searchsorted,
    aten.searchsorted.Scalar: _searchsorted,
    aten.bucketize.Tensor: _bucketize,
    aten.bucketize.Scalar: _bucketize,
    **{operator: partial(_promoted, operator) for operator in (aten.gcd.default, aten.lcm.default)},
    aten.take.default: lambda self, index: self.reshape(-1)[index.reshape(-1)].view(index.shape),
    aten.cdist.default: _distances,
    aten.pdist.default: _pdist,
    aten._pdist_forward.default: _pdist,
    **LINEAR_ALGEBRA,
    aten.addbmm.default: _addbmm,
    aten.index_reduce.default: _index_reduce,
    aten.bilinear.default: as_torch_does(aten.bilinear.default),
    aten._trilinear.default: _trilinear,
    aten.adaptive_avg_pool3d.default: _adaptive_average,
    aten._adaptive_avg_pool3d.default: _adaptive_average,
    aten.adaptive_max_pool3d.default: _adaptive_maximum,
    **{operator: partial(_if_dynamic, operator) for operator in _POOLS},
    aten.median.dim: _of_rows(_median),
    aten.nanmedian.dim: _of_rows(_nanmedian),
    aten.nanmedian.default: lambda self: _of_rows(_nanmedian)(self.reshape(-1))[0],
    aten.mode.default: _of_rows(_mode),
    aten.histc.default: _histc,
    aten.nonzero_static.default: _nonzero_static,
    aten.fake_quantize_per_tensor_affine.default: _fake_quantize,
    aten.fake_quantize_per_tensor_affine.tensor_qparams: _fake_quantize,
    aten.fake_quantize_per_channel_affine.default: _fake_quantize_rows,
    **dict.fromkeys((aten.erf.default, aten.special_erf.default), _erf),
    aten.atanh.default: _atanh,
    aten.pow.Tensor_Scalar: _power,
    aten.fft_fftfreq.default: _frequencies,
    aten.fft_rfftfreq.default: lambda n, *d, **given: _frequencies(n, *d, **given)[
        : n // 2 + 1
    ].abs(),
    chunked_loss._opoverload: _linear_cross_entropy,
    aten.multilabel_margin_loss_forward.default: _multilabel_margins,
    aten.multilabel_margin_loss.default: lambda *given: _multilabel_margins(*given)[0],
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    **dict.fromkeys(_BAGS, _embedding_bag),
    aten.embedding_bag.padding_idx: _padded_bag,
    aten.grid_sampler.default: _grid_sampler,
    aten.grid_sampler_2d.default: _grid_sampler,
    aten.grid_sampler_3d.default: _grid_sampler,
    **get_decompositions([aten._upsample_bilinear2d_aa.vec, aten._upsample_bicubic2d_aa.vec]),
    aten._upsample_bilinear2d_aa.default: partial(_resize, _triangle, 1),
    aten._upsample_bicubic2d_aa.default: partial(_resize, partial(_cubic, a=-0.5), 2),
    **dict.fromkeys(_LINEAR, resize_linearly),
    aten.upsample_nearest2d.vec: resize_to_nearest,
    aten.upsample_nearest2d.default: resize_to_nearest,
    aten.upsample_bilinear2d.vec: _resize_bilinearly,
    aten.upsample_bilinear2d.default: _resize_bilinearly,
    aten.upsample_bicubic2d.vec: partial(_resize_bytes, partial(_cubic, a=-0.75), 2),
    aten.upsample_bicubic2d.default: partial(_resize_bytes, partial(_cubic, a=-0.75), 2),
}
