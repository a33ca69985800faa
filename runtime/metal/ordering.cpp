// Sorting along an axis on the device. NaN counts as the largest value, equal values keep their
// order.
#include <bit>

#include "common/operators.h"
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

}  // namespace

Chosen backend::first_in_order(const Tensor& self, int32_t axis, int64_t kept, bool descending,
                               const Extents& strides) {
  const auto axes = static_cast<size_t>(self.dimensions);
  Extents sizes = self.size;
  if (axes > 0) sizes[axis] = kept;
  const std::span shape(sizes.data(), axes);
  const Chosen out{metal::empty_contiguous(self.dtype, shape),
                   metal::empty_contiguous(Dtype::kInt64, shape)};
  if (!out.values.empty()) {
    const Rows rows = rows_along(self, axis);
    const Tensor order = order_of(self, rows, descending);
    const auto padded = static_cast<int32_t>(order.size[1]);
    Arguments arguments;
    arguments.add(dense(self)).add(order).add(out.values).add(out.indices);
    arguments.add(Taken{rows.length, rows.inner, kept, padded});
    dispatch("sort", "take_" + std::to_string(element_size(self.dtype)), arguments,
             threads_for(out.values));
  }
  const std::span wanted(strides.data(), axes);
  return {with_strides(out.values, wanted), with_strides(out.indices, wanted)};
}
