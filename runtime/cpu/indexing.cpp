// Reading and writing elements by lists of positions, and scattering along an axis.
#include <algorithm>
#include <limits>
#include <vector>

#include "common/copy.h"
#include "common/dtype.h"
#include "common/operators.h"
#include "common/quantised.h"
#include "common/shim_support.h"

using namespace menagerie;

namespace {

// Return the offsets, in elements, of the slices that the lists select.
std::vector<int64_t> places_of(const Tensor& self, const Indices& indices) {
  std::vector<int64_t> places(static_cast<size_t>(indices.count()), 0);
  for (size_t i = 0; i < indices.lists.size(); ++i) {
    const Tensor& index = indices.lists[i];
    const int64_t size = self.size[indices.axes[i]];
    size_t at = 0;
    for_each_index(indices.sizes, [&](std::span<const int64_t> position) {
      const int64_t found = index.data<int64_t>()[offset_of(index, position)];
      require(found >= -size && found < size, "index ", found, " is not in axis ", indices.axes[i],
              " of ", self);
      places[at++] += (found < 0 ? found + size : found) * self.stride[indices.axes[i]];
    });
  }
  return places;
}

// Return the part of a tensor behind the indexed axes.
Tensor slice_of(const Tensor& first, size_t indexed) {
  Tensor slice = first;
  slice.dimensions -= static_cast<int32_t>(indexed);
  std::shift_left(slice.size.begin(), slice.size.end(), static_cast<std::ptrdiff_t>(indexed));
  std::shift_left(slice.stride.begin(), slice.stride.end(), static_cast<std::ptrdiff_t>(indexed));
  return slice;
}

// Call body(offset in self, number of the element in the result) for all that the lists select.
template <class Body>
void for_each_named(const Tensor& self, const Indices& indices, Body&& body) {
  const Tensor slice = slice_of(indices.indexed_first(self), indices.axes.size());
  int64_t number = 0;
  for (const int64_t place : places_of(self, indices)) {
    for_each_index(slice.sizes(),
                   [&](auto index) { body(place + offset_of(slice, index), number++); });
  }
}

}  // namespace

Tensor backend::read_at(const Tensor& self, const Indices& indices) {
  const Tensor out = empty_contiguous(self.dtype, indices.result_sizes(self));
  with_type(self.dtype, [&]<class T>(T) {
    for_each_named(self, indices, [&](int64_t offset, int64_t number) {
      out.data<T>()[number] = self.data<T>()[offset];
    });
  });
  const Tensor arranged = indices.arranged(out);
  return arranged.is_contiguous() ? arranged : contiguous(arranged);
}

Tensor backend::put_at(const Tensor& self, const Indices& indices, const Tensor& values,
                       bool accumulate) {
  const Tensor out = menagerie::clone(self);
  if (accumulate && is_half(self.dtype)) {
    menagerie::assign(put_at(widened(self), indices, widened(values), true), out);
    return out;
  }
  const Tensor from = contiguous(values);
  with_type(out.dtype, [&]<class T>(T) {
    for_each_named(out, indices, [&](int64_t offset, int64_t number) {
      T& element = out.data<T>()[offset];
      const T value = from.data<T>()[number];
      element = accumulate ? static_cast<T>(element + value) : value;
    });
  });
  return out;
}

namespace {

// Return the value that leaves any other unchanged when combined with it.
template <class T>
T neutral(Reduction reduction) {
  constexpr bool kWhole = std::is_integral_v<T>;
  using Limits = std::numeric_limits<std::conditional_t<kWhole, T, float>>;
  switch (reduction) {
    case Reduction::kMultiply:
      return static_cast<T>(1);
    case Reduction::kLargest:
      return static_cast<T>(kWhole ? Limits::lowest() : -Limits::infinity());
    case Reduction::kSmallest:
      return static_cast<T>(kWhole ? Limits::max() : Limits::infinity());
    default:
      return T{};
  }
}

template <class T>
T combined(T old, T value, Reduction reduction) {
  switch (reduction) {
    case Reduction::kAdd:
    case Reduction::kMean:
      return static_cast<T>(old + value);
    case Reduction::kMultiply:
      return static_cast<T>(old * value);
    case Reduction::kLargest:
      return old != old || (value == value && old > value) ? old : value;
    case Reduction::kSmallest:
      return old != old || (value == value && old < value) ? old : value;
    default:
      return value;
  }
}

// Call body(offset in the result, offset in the source) for each element of the index.
template <class Body>
void for_each_scattered(const Scatter& scatter, Body&& body) {
  const int64_t length = scatter.out.size[scatter.axis];
  for_each_index(scatter.index.sizes(), [&](std::span<const int64_t> position) {
    const int64_t place = scatter.index.data<int64_t>()[offset_of(scatter.index, position)];
    require(place >= 0 && place < length, "index ", place, " is not in axis ", scatter.axis, " of ",
            scatter.out);
    const int64_t moved = (place - position[scatter.axis]) * scatter.out.stride[scatter.axis];
    body(offset_of(scatter.out, position) + moved, offset_of(scatter.source, position));
  });
}

// Divide by the number of elements that were summed; integers are rounded down.
template <class T>
void divide(const Tensor& out, const Tensor& counts) {
  const auto* count = counts.data<int64_t>();
  for_each_index(out.sizes(), [&](std::span<const int64_t> position) {
    T& value = out.data<T>()[offset_of(out, position)];
    const int64_t n = *count++;
    if (n == 0) return;
    if constexpr (std::is_integral_v<T>) {
      const auto whole = static_cast<int64_t>(value);
      value = static_cast<T>(whole / n - (whole % n < 0 ? 1 : 0));
    } else {
      value = static_cast<T>(value / static_cast<T>(n));
    }
  });
}

// Return the number of elements that each element of the result is the sum of.
Tensor counts_of(const Scatter& scatter) {
  const Tensor counts = empty_contiguous(Dtype::kInt64, scatter.out.sizes());
  std::fill_n(counts.data<int64_t>(), counts.elements(), scatter.include_self ? 1 : 0);
  Scatter counted = scatter;
  counted.out = counts;
  for_each_scattered(counted, [&](int64_t at, int64_t) { ++counts.data<int64_t>()[at]; });
  return counts;
}

template <class T>
void scatter_into(const Scatter& scatter) {
  T* out = scatter.out.data<T>();
  if (!scatter.include_self) {
    const T start = neutral<T>(scatter.reduction);
    for_each_scattered(scatter, [&](int64_t at, int64_t) { out[at] = start; });
  }
  for_each_scattered(scatter, [&](int64_t at, int64_t from) {
    out[at] = combined(out[at], scatter.source.data<T>()[from], scatter.reduction);
  });
  if (scatter.reduction == Reduction::kMean) divide<T>(scatter.out, counts_of(scatter));
}

}  // namespace

Tensor backend::one_value(Dtype dtype, double value) {
  const Tensor one = empty_contiguous(dtype, {});
  with_type(dtype, [&]<class T>(T) { *one.data<T>() = static_cast<T>(value); });
  return one;
}

void backend::scatter(const Scatter& scatter) {
  menagerie::assign(scatter.self, scatter.out);
  if (scatter.index.empty()) return;
  with_type(scatter.out.dtype, [&]<class T>(T) { scatter_into<T>(scatter); });
}

namespace {

Tensor table_rows(const Tensor& table, const Tensor& indices) {
  require(table.dimensions == 2 && table.dtype == Dtype::kFloat32, "the table ", table,
          " must be a matrix of float32");
  require(indices.dimensions < kMaxDimensions, "the indices ", indices, " have too many axes");
  const Tensor numbers = contiguous(indices, Dtype::kInt64);
  Extents sizes = indices.size;
  sizes[indices.dimensions] = table.size[1];
  const Tensor result = empty_contiguous(
      Dtype::kFloat32, {sizes.data(), static_cast<size_t>(indices.dimensions) + 1});
  const auto stored = rows_behind(table);
  const Tensor rows = stored || table.is_contiguous() ? table : contiguous(table);
  const int64_t columns = table.size[1];
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    const int64_t row = numbers.data<int64_t>()[i];
    require(row >= 0 && row < table.size[0], "an index is out of range: ", row, " in a table of ",
            table.size[0], " rows");
    float* to = result.data<float>() + i * columns;
    if (stored) {
      widen(*stored->all, stored->first + row, 0, columns, to);
    } else {
      std::copy_n(rows.data<float>() + row * columns, columns, to);
    }
  }
  return result;
}

}  // namespace

MENAGERIE_SHIM aoti_torch_cpu_table_rows(AtenTensorHandle table, AtenTensorHandle indices,
                                         AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(table_rows(operand(table), operand(indices))); });
}
