#include "common/copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/dtype.h"

namespace menagerie {
namespace {

// One axis of a copy, with strides in bytes.
struct Loop {
  int64_t size;
  int64_t from;
  int64_t to;
};

// Return the axes from outermost to innermost target stride, merged where both sides are dense.
std::vector<Loop> plan(const Tensor& source, const Tensor& target) {
  const int64_t width = element_size(source.dtype);
  std::vector<Loop> loops;
  for (int32_t axis = 0; axis < source.dimensions; ++axis) {
    if (source.size[axis] == 1) continue;
    loops.push_back({source.size[axis], source.stride[axis] * width, target.stride[axis] * width});
  }
  std::ranges::stable_sort(loops, [](const Loop& a, const Loop& b) {
    return a.to != b.to ? a.to > b.to : a.from > b.from;
  });
  std::vector<Loop> merged;
  for (const Loop& loop : loops) {
    if (!merged.empty() && merged.back().from == loop.from * loop.size &&
        merged.back().to == loop.to * loop.size) {
      merged.back() = {merged.back().size * loop.size, loop.from, loop.to};
    } else {
      merged.push_back(loop);
    }
  }
  if (merged.empty()) merged.push_back({1, width, width});
  return merged;
}

template <class T>
void copy_row(const std::byte* from, std::byte* to, const Loop& loop) {
  for (int64_t i = 0; i < loop.size; ++i) {
    std::memcpy(to + i * loop.to, from + i * loop.from, sizeof(T));
  }
}

using CopyRow = void (*)(const std::byte*, std::byte*, const Loop&);

CopyRow row_copier(int64_t width) {
  switch (width) {
    case 1:
      return copy_row<uint8_t>;
    case 2:
      return copy_row<uint16_t>;
    case 4:
      return copy_row<uint32_t>;
    default:
      return copy_row<uint64_t>;
  }
}

void copy_loops(const std::byte* from, std::byte* to, const std::vector<Loop>& loops, size_t depth,
                int64_t width, CopyRow row) {
  const Loop& loop = loops[depth];
  if (depth + 1 == loops.size()) {
    if (loop.from == width && loop.to == width) {
      std::memcpy(to, from, static_cast<size_t>(loop.size * width));
    } else {
      row(from, to, loop);
    }
    return;
  }
  for (int64_t i = 0; i < loop.size; ++i) {
    copy_loops(from + i * loop.from, to + i * loop.to, loops, depth + 1, width, row);
  }
}

const std::byte* end_of(const Tensor& tensor) {
  return tensor.data<std::byte>() + bytes_of(tensor.dtype, tensor.sizes(), tensor.strides());
}

// Return whether the strides are equal; the stride of an axis of one element is ignored.
bool same_steps(const Tensor& a, const Tensor& b) {
  for (int32_t axis = 0; axis < a.dimensions; ++axis) {
    if (a.size[axis] != 1 && a.stride[axis] != b.stride[axis]) return false;
  }
  return true;
}

template <class From, class To>
void convert(const Tensor& source, const Tensor& target) {
  const auto* from = source.data<From>();
  auto* to = target.data<To>();
  for_each_index(target.sizes(), [&](std::span<const int64_t> index) {
    to[offset_of(target, index)] = static_cast<To>(from[offset_of(source, index)]);
  });
}

}  // namespace

std::vector<int32_t> axes_by_stride(const Tensor& tensor) {
  std::vector<int32_t> axes;
  for (int32_t axis = 0; axis < tensor.dimensions; ++axis) {
    if (tensor.size[axis] != 1) axes.push_back(axis);
  }
  std::ranges::sort(axes, {}, [&](int32_t axis) { return tensor.stride[axis]; });
  return axes;
}

Tensor as_matrix(const Tensor& tensor, int64_t columns) {
  const Tensor dense = tensor.is_contiguous() ? tensor : contiguous(tensor);
  const int64_t sizes[] = {columns == 0 ? 0 : tensor.elements() / columns, columns};
  Tensor matrix = dense;
  matrix.dimensions = 2;
  std::ranges::copy(sizes, matrix.size.begin());
  matrix.stride = contiguous_strides(sizes);
  return matrix;
}

bool is_dense(const Tensor& tensor) {
  if (tensor.empty()) return true;
  int64_t expected = 1;
  for (const int32_t axis : axes_by_stride(tensor)) {
    if (tensor.stride[axis] != expected) return false;
    expected *= tensor.size[axis];
  }
  return true;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.empty() || b.empty()) return false;
  return a.data<std::byte>() < end_of(b) && b.data<std::byte>() < end_of(a);
}

std::vector<int64_t> broadcast_sizes(std::span<const Tensor> tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) {
    const auto axes = static_cast<size_t>(tensor.dimensions);
    if (sizes.size() < axes) sizes.insert(sizes.begin(), axes - sizes.size(), 1);
    for (size_t axis = 0; axis < axes; ++axis) {
      int64_t& size = sizes[sizes.size() - axes + axis];
      if (size == 1) size = tensor.size[axis];
    }
  }
  return sizes;
}

Tensor broadcast(const Tensor& source, std::span<const int64_t> sizes) {
  const auto missing = static_cast<int32_t>(sizes.size()) - source.dimensions;
  require(missing >= 0, source, " has more axes than its target");
  Tensor view = source;
  view.dimensions = static_cast<int32_t>(sizes.size());
  for (int32_t axis = 0; axis < view.dimensions; ++axis) {
    const int64_t own = axis < missing ? 1 : source.size[axis - missing];
    require(own == 1 || own == sizes[axis], "axis ", axis, " of size ", sizes[axis],
            " cannot take ", source);
    view.size[axis] = sizes[axis];
    view.stride[axis] = own == 1 ? 0 : source.stride[axis - missing];
  }
  return view;
}

void copy(const Tensor& source, const Tensor& target) {
  require(source.dtype == target.dtype && std::ranges::equal(source.sizes(), target.sizes()),
          "cannot copy ", source, " into ", target);
  if (source.empty()) return;
  if (source.raw() == target.raw() && same_steps(source, target)) return;
  require(!overlap(source, target), "source and target of a copy overlap");
  const int64_t width = element_size(source.dtype);
  copy_loops(source.data<std::byte>(), target.data<std::byte>(), plan(source, target), 0, width,
             row_copier(width));
}

void assign(const Tensor& source, const Tensor& target) {
  const Tensor wide = broadcast(source, target.sizes());
  if (wide.dtype == target.dtype) return copy(wide, target);
  require(!overlap(wide, target), "source and target of a copy overlap");
  with_type(wide.dtype, [&]<class From>(From) {
    with_type(target.dtype, [&]<class To>(To) { convert<From, To>(wide, target); });
  });
}

void fill_zero(const Tensor& target) {
  if (target.empty()) return;
  // A zero of stride zero stands for every element.
  Tensor zero = empty_contiguous(target.dtype, {});
  std::memset(zero.raw(), 0, static_cast<size_t>(element_size(target.dtype)));
  copy(broadcast(zero, target.sizes()), target);
}

Tensor contiguous(const Tensor& source, Dtype dtype) {
  Tensor fresh = empty_contiguous(dtype, source.sizes());
  assign(source, fresh);
  return fresh;
}

Tensor clone(const Tensor& source) {
  Tensor fresh = empty_like(source);
  copy(source, fresh);
  return fresh;
}

}  // namespace menagerie
