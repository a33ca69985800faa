// Sorting, running sums, products and extremes along an axis on the device. NaN counts as the
// largest value, equal values keep their order; sums are made in float32 or int64.
#include <algorithm>
#include <array>
#include <bit>

#include "common/operators.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr int64_t kLongestRow = int64_t{1} << 29;

// As sort.metal has them.
constexpr int32_t kHeld = 1024;  // neighbours that a group of threads sorts by itself
constexpr uint64_t kGroup = 256;
struct Stages {
  int64_t length, inner, total;
  int32_t padded, block, last, distance, descending;
};
struct Taken {
  int64_t length, inner, kept;
  int32_t padded;
};

void dispatch_stages(const std::string& function, const Tensor& keys, const Tensor& order,
                     const Stages& stages, uint64_t threads) {
  dispatch("sort", function + metal_name(keys.dtype), Arguments(keys, order, stages),
           Grid{{threads, 1, 1}, {std::min(threads, kGroup), 1, 1}});
}

}  // namespace

Tensor metal::order_of(const Tensor& self, const Rows& rows, bool descending) {
  require(rows.length <= kLongestRow, "a row of ", self, " is too long to be sorted");
  const auto padded = static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(rows.length)));
  const Tensor keys = converted(self, wide(self.dtype));
  const Tensor order =
      metal::empty_contiguous(Dtype::kInt32, std::array{rows.count(), int64_t{padded}});
  const uint64_t pairs = threads_for(order.elements()) / 2;
  const uint64_t held =
      quotient(order.elements(), kHeld) * std::min(std::max<uint64_t>(pairs, 1), kGroup);
  Stages stages{
      rows.length, rows.inner,        order.elements(), padded, 2, std::min(padded, kHeld),
      0,           descending ? 1 : 0};
  dispatch_stages("sort_held_", keys, order, stages, held);
  for (stages.block = 2 * kHeld; stages.block <= padded; stages.block *= 2) {
    stages.last = stages.block;
    for (stages.distance = stages.block / 2; stages.distance >= kHeld; stages.distance /= 2) {
      dispatch_stages("exchange_", keys, order, stages, pairs);
    }
    dispatch_stages("sort_held_", keys, order, stages, held);
  }
  return order;
}

ValuesAndIndices backend::first_in_order(const Tensor& self, int32_t axis, int64_t kept,
                                         bool descending, const Extents& strides) {
  const auto axes = static_cast<size_t>(self.dimensions);
  Extents sizes = self.size;
  if (axes > 0) sizes[axis] = kept;
  const std::span shape(sizes.data(), axes);
  const ValuesAndIndices out{metal::empty_contiguous(self.dtype, shape),
                             metal::empty_contiguous(Dtype::kInt64, shape)};
  if (!out.values.empty()) {
    const Rows rows = rows_along(self, axis);
    const Tensor order = order_of(self, rows, descending);
    const auto padded = static_cast<int32_t>(order.size[1]);
    const Taken taken{rows.length, rows.inner, kept, padded};
    dispatch("sort", "take_" + std::to_string(element_size(self.dtype)),
             Arguments(dense(self), order, out.values, out.indices, taken),
             threads_for(out.values));
  }
  const std::span wanted(strides.data(), axes);
  return {with_strides(out.values, wanted), with_strides(out.indices, wanted)};
}

namespace {

constexpr int32_t kWalkers = 256;        // threads, as scan.metal has them
constexpr int64_t kOrderThreads = 8192;  // for a GPU to be busy
constexpr int64_t kShortRun = 16;        // values that are not worth another thread

// As scan.metal has them.
struct Walks {
  int64_t length, inner;
  int32_t parts;
};

// As many threads a row as keep a GPU busy.
Walks walks_of(const Rows& rows) {
  int32_t parts = 1;
  while (parts < kWalkers && rows.count() * parts < kOrderThreads &&
         rows.length > parts * kShortRun) {
    parts *= 2;
  }
  return {rows.length, rows.inner, parts};
}

void walk(const std::string& function, Arguments arguments, const Rows& rows) {
  const Walks walks = walks_of(rows);
  arguments.add(walks);
  const uint64_t threads = threads_for(rows.count() * walks.parts);
  dispatch("scan", function, arguments, Grid{{threads, 1, 1}, {kWalkers, 1, 1}});
}

std::string name_of(backend::Scan scan) {
  switch (scan) {
    case backend::Scan::kSum:
      return "cumsum_";
    case backend::Scan::kProduct:
      return "cumprod_";
    case backend::Scan::kLogSumExp:
      return "logcumsumexp_";
  }
}

}  // namespace

Tensor backend::scanned(Scan scan, const Tensor& self, int32_t axis, Dtype dtype) {
  const Tensor from = converted(converted(self, dtype), wide(dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const std::string function = name_of(scan) + metal_name(to.dtype);
  if (!to.empty()) walk(function, Arguments(from, to), rows_along(from, axis));
  return converted(to, dtype);
}

ValuesAndIndices backend::extremes_so_far(const Tensor& self, int32_t axis, bool largest) {
  const Tensor from = converted(self, wide(self.dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const Tensor where = metal::empty_contiguous(Dtype::kInt64, from.sizes());
  const std::string function = (largest ? "cummax_" : "cummin_") + metal_name(to.dtype);
  if (!to.empty()) walk(function, Arguments(from, to, where), rows_along(from, axis));
  return {converted(to, self.dtype), where};
}
