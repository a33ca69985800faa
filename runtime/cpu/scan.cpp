// Running sums, products and extremes along an axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/copy.h"
#include "common/element.h"
#include "common/operators.h"
#include "cpu/rows.h"

using namespace menagerie;

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

// log(exp(a) + exp(b)), without overflow.
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

// Values become the best so far, and places where those stood.
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
  const Tensor out = empty_contiguous(dtype, self.sizes());
  menagerie::assign(self, out);
  with_type(dtype, [&]<class T>(T) { scan_along<T>(scan, out, axis); });
  return out;
}

ValuesAndIndices backend::extremes_so_far(const Tensor& self, int32_t axis, bool largest) {
  const ValuesAndIndices out{contiguous(self), empty_contiguous(Dtype::kInt64, self.sizes())};
  with_type(self.dtype,
            [&]<class T>(T) { extremes_along<T>(out.values, out.indices, axis, largest); });
  return out;
}
