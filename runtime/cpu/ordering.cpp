// Sorting, running sums, products and extremes along an axis. NaN counts as the largest value, as
// in torch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/copy.h"
#include "common/host_operators.h"
#include "common/operators.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

// Write the first `kept` elements of each row in order; equal values keep their order.
template <class T>
void sort_rows(const Tensor& self, int32_t axis, bool descending, const ValuesAndIndices& out) {
  const auto from = row_starts(self, axis);
  const auto to = row_starts(out.values, axis);
  const auto to_index = row_starts(out.indices, axis);
  const int64_t length = row_length(self, axis);
  const int64_t kept = row_length(out.values, axis);
  for_each_row(from.size(), [&](size_t row) {
    const T* values = self.data<T>() + from[row];
    const int64_t stride = row_stride(self, axis);
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto before = [&](int64_t a, int64_t b) {
      const T x = values[a * stride];
      const T y = values[b * stride];
      if (descending ? host::is_less(y, x) : host::is_less(x, y)) return true;
      return !(descending ? host::is_less(x, y) : host::is_less(y, x)) && a < b;
    };
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
    for (int64_t i = 0; i < kept; ++i) {
      const int64_t chosen = order[static_cast<size_t>(i)];
      out.values.data<T>()[to[row] + i * row_stride(out.values, axis)] = values[chosen * stride];
      out.indices.data<int64_t>()[to_index[row] + i * row_stride(out.indices, axis)] = chosen;
    }
  });
}

}  // namespace

ValuesAndIndices backend::first_in_order(const Tensor& self, int32_t axis, int64_t kept,
                                         bool descending, const Extents& strides) {
  const auto axes = static_cast<size_t>(self.dimensions);
  Extents sizes = self.size;
  if (axes > 0) sizes[axis] = kept;
  const std::span shape(sizes.data(), axes);
  const std::span wanted(strides.data(), axes);
  ValuesAndIndices out{empty_strided(self.dtype, shape, wanted),
                       empty_strided(Dtype::kInt64, shape, wanted)};
  if (out.values.empty()) return out;
  with_type(self.dtype, [&]<class T>(T) { sort_rows<T>(self, axis, descending, out); });
  return out;
}

namespace {

// Single and half precision are accumulated in double and rounded at every element, as in torch.
template <class T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, T, double>;

template <class T, class Combine>
void scan_rows(const Tensor& tensor, int32_t axis, Combine combine, Accumulator<T> start) {
  const auto starts = row_starts(tensor, axis);
  for_each_row(starts.size(), [&](size_t row) {
    T* values = tensor.data<T>() + starts[row];
    Accumulator<T> running = start;
    for (int64_t i = 0; i < row_length(tensor, axis); ++i) {
      T& value = values[i * row_stride(tensor, axis)];
      running = combine(running, static_cast<Accumulator<T>>(value));
      value = static_cast<T>(running);
    }
  });
}

// Return log(exp(a) + exp(b)) without overflow.
double log_of_sum(double a, double b) {
  const double high = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return std::isinf(high) ? high : high + std::log1p(std::exp(std::min(a, b) - high));
}

template <class T>
void scan_along(backend::Scan scan, const Tensor& out, int32_t axis) {
  if (scan == backend::Scan::kSum) {
    scan_rows<T>(out, axis, [](auto sum, auto value) { return sum + value; }, 0);
  } else if (scan == backend::Scan::kProduct) {
    scan_rows<T>(out, axis, [](auto product, auto value) { return product * value; }, 1);
  } else if constexpr (std::is_same_v<Accumulator<T>, double>) {
    scan_rows<T>(out, axis, log_of_sum, -std::numeric_limits<double>::infinity());
  }
}

// Replace values by the best so far, and places by the positions of those.
template <class T>
void extremes_along(const Tensor& values, const Tensor& places, int32_t axis, bool largest) {
  const auto starts = row_starts(values, axis);
  for_each_row(starts.size(), [&](size_t row) {
    T best = values.data<T>()[starts[row]];
    int64_t place = 0;
    for (int64_t i = 0; i < row_length(values, axis); ++i) {
      const int64_t at = starts[row] + i * row_stride(values, axis);
      const T value = values.data<T>()[at];
      const bool better = largest ? value >= best : value <= best;
      if (value != value || (best == best && better)) {
        best = value;
        place = i;
      }
      values.data<T>()[at] = best;
      places.data<int64_t>()[at] = place;
    }
  });
}

}  // namespace

Tensor backend::scanned(Scan scan, const Tensor& self, int32_t axis, Dtype dtype) {
  const Tensor out = contiguous(self, dtype);
  with_type(dtype, [&]<class T>(T) { scan_along<T>(scan, out, axis); });
  return out;
}

ValuesAndIndices backend::extremes_so_far(const Tensor& self, int32_t axis, bool largest) {
  const ValuesAndIndices out{contiguous(self), empty_contiguous(Dtype::kInt64, self.sizes())};
  with_type(self.dtype,
            [&]<class T>(T) { extremes_along<T>(out.values, out.indices, axis, largest); });
  return out;
}
