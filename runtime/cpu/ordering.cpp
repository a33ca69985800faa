// Sorting along an axis. NaN counts as the largest value, as in torch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/element.h"
#include "common/shim_support.h"
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

struct Sorted {
  Tensor values;
  Tensor indices;
};

// The first `kept` of each row, in order; equal values keep the order in which they stand.
template <class T>
void sort_rows(const Tensor& self, int32_t axis, bool descending, const Sorted& out) {
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

void sort_into(const Tensor& self, int32_t axis, bool descending, const Sorted& out) {
  if (out.values.empty()) return;
  with_type(self.dtype, [&]<class T>(T) { sort_rows<T>(self, axis, descending, out); });
}

Sorted sorted(const Tensor& self, int64_t dim, bool descending) {
  const int32_t axis = checked_axis(self, dim);
  Sorted out{empty_like(self), {}};
  out.indices = empty_strided(Dtype::kInt64, self.sizes(), out.values.strides());
  sort_into(self, axis, descending, out);
  return out;
}

}  // namespace

AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int64_t dim, int32_t descending,
                                   AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    Sorted out = sorted(operand(self), dim, descending != 0);
    *ret0 = to_handle(std::move(out.values));
    *ret1 = to_handle(std::move(out.indices));
  });
}

AOTITorchError aoti_torch_cpu_sort_stable(AtenTensorHandle self, int32_t*, int64_t dim,
                                          int32_t descending, AtenTensorHandle* ret0,
                                          AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    Sorted out = sorted(operand(self), dim, descending != 0);
    *ret0 = to_handle(std::move(out.values));
    *ret1 = to_handle(std::move(out.indices));
  });
}

AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest,
                                   int32_t, AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const int32_t axis = checked_axis(input, dim);
    require(k >= 0 && k <= row_length(input, axis), "k = ", k, " is not within axis ", axis, " of ",
            input);
    Extents sizes = input.size;
    if (input.dimensions > 0) sizes[axis] = k;
    const std::span kept(sizes.data(), static_cast<size_t>(input.dimensions));
    Sorted out{empty_contiguous(input.dtype, kept), empty_contiguous(Dtype::kInt64, kept)};
    sort_into(input, axis, largest != 0, out);
    *ret0 = to_handle(std::move(out.values));
    *ret1 = to_handle(std::move(out.indices));
  });
}
