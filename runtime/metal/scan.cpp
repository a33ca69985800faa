// Running sums, products, extremes along an axis on the device. All are computed in float32 or
// int64.
#include "common/operators.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr int32_t kGroup = 256;           // threads, as scan.metal has them
constexpr int64_t kEnoughThreads = 8192;  // for a GPU to be busy
constexpr int64_t kShort = 16;            // values that are not worth another thread

// As scan.metal has them.
struct Walks {
  int64_t length, inner;
  int32_t parts;
};

// As many threads a row as keep a GPU busy.
Walks walks_of(const Rows& rows) {
  int32_t parts = 1;
  while (parts < kGroup && rows.count() * parts < kEnoughThreads && rows.length > parts * kShort) {
    parts *= 2;
  }
  return {rows.length, rows.inner, parts};
}

void walk(const std::string& function, Arguments& arguments, const Rows& rows) {
  const Walks walks = walks_of(rows);
  arguments.add(walks);
  const uint64_t threads = threads_for(rows.count() * walks.parts);
  dispatch("scan", function, arguments, Grid{{threads, 1, 1}, {kGroup, 1, 1}});
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
  Arguments arguments;
  arguments.add(from).add(to);
  if (!to.empty()) walk(name_of(scan) + metal_name(to.dtype), arguments, rows_along(from, axis));
  return converted(to, dtype);
}

ValuesAndIndices backend::extremes_so_far(const Tensor& self, int32_t axis, bool largest) {
  const Tensor from = converted(self, wide(self.dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const Tensor where = metal::empty_contiguous(Dtype::kInt64, from.sizes());
  Arguments arguments;
  arguments.add(from).add(to).add(where);
  const std::string function = largest ? "cummax_" : "cummin_";
  if (!to.empty()) walk(function + metal_name(to.dtype), arguments, rows_along(from, axis));
  return {converted(to, self.dtype), where};
}
