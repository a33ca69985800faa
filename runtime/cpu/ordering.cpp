// Sorting along an axis. NaN counts as the largest value, as in torch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/element.h"
#include "common/operators.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

template <class T>
bool less(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b;
  } else {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    return x < y || (std::isnan(y) && !std::isnan(x));
  }
}

// The first `kept` of each row, in order; equal values keep the order in which they stand.
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
      if (descending ? less(y, x) : less(x, y)) return true;
      return !(descending ? less(x, y) : less(y, x)) && a < b;
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
