// Sorting along an axis on the device. NaN counts as the largest value, equal values keep their
// order.
#include <bit>

#include "common/axes.h"
#include "common/shim_support.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr int64_t kLongestRow = int64_t{1} << 30;

// As sort.metal has them.
struct Step {
  int64_t length, inner;
  int32_t padded, block, distance, descending;
};
struct Taken {
  int64_t length, inner, kept;
  int32_t padded;
};

// For each row the positions of its elements in order, padded to a power of two.
Tensor order_of(const Tensor& self, const Rows& rows, bool descending) {
  require(rows.length <= kLongestRow, "a row of ", self, " is too long to be sorted");
  const auto padded = static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(rows.length)));
  const Tensor keys = converted(self, wide(self.dtype));
  const int64_t sizes[] = {rows.count(), padded};
  const Tensor order = metal::empty_contiguous(Dtype::kInt32, sizes);
  Arguments start;
  start.add(order).add(padded);
  dispatch("sort", "start_order", start, threads_for(order));
  for (int32_t block = 2; block <= padded; block *= 2) {
    for (int32_t distance = block / 2; distance > 0; distance /= 2) {
      Arguments arguments;
      arguments.add(keys).add(order);
      arguments.add(Step{rows.length, rows.inner, padded, block, distance, descending ? 1 : 0});
      dispatch("sort", "exchange_" + metal_name(keys.dtype), arguments,
               threads_for(order.elements() / 2));
    }
  }
  return order;
}

struct Sorted {
  Tensor values, indices;  // contiguous
};

// The first `kept` of each row, in order.
Sorted sorted(const Tensor& self, int32_t axis, int64_t kept, bool descending) {
  Extents sizes = self.size;
  if (self.dimensions > 0) sizes[axis] = kept;
  const std::span shape(sizes.data(), static_cast<size_t>(self.dimensions));
  Sorted out{metal::empty_contiguous(self.dtype, shape),
             metal::empty_contiguous(Dtype::kInt64, shape)};
  if (out.values.empty()) return out;
  const Rows rows = rows_along(self, axis);
  const Tensor order = order_of(self, rows, descending);
  const auto padded = static_cast<int32_t>(order.size[1]);
  Arguments arguments;
  arguments.add(dense(self)).add(order).add(out.values).add(out.indices);
  arguments.add(Taken{rows.length, rows.inner, kept, padded});
  dispatch("sort", "take_" + std::to_string(element_size(self.dtype)), arguments,
           threads_for(out.values));
  return out;
}

void sort(const Tensor& self, int64_t dim, bool descending, AtenTensorHandle* values,
          AtenTensorHandle* indices) {
  const int32_t axis = checked_axis(self, dim);
  const Rows rows = rows_along(self, axis);
  const Sorted out = sorted(self, axis, rows.length, descending);
  const Extents strides = strides_like(self);
  const std::span wanted(strides.data(), self.sizes().size());
  *values = to_handle(with_strides(out.values, wanted));
  *indices = to_handle(with_strides(out.indices, wanted));
}

}  // namespace

AOTITorchError aoti_torch_mps_sort(AtenTensorHandle self, int64_t dim, int32_t descending,
                                   AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { sort(operand(self), dim, descending != 0, ret0, ret1); });
}

AOTITorchError aoti_torch_mps_sort_stable(AtenTensorHandle self, int32_t*, int64_t dim,
                                          int32_t descending, AtenTensorHandle* ret0,
                                          AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { sort(operand(self), dim, descending != 0, ret0, ret1); });
}

AOTITorchError aoti_torch_mps_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest,
                                   int32_t, AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const int32_t axis = checked_axis(input, dim);
    const int64_t length = rows_along(input, axis).length;
    require(k >= 0 && k <= length, "k = ", k, " is not within axis ", axis, " of ", input);
    Sorted out = sorted(input, axis, k, largest != 0);
    *ret0 = to_handle(std::move(out.values));
    *ret1 = to_handle(std::move(out.indices));
  });
}
