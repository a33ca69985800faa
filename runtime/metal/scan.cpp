// Running sums, products, extremes along an axis on the device. All are computed in float32 or
// int64.
#include "common/operators.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

std::string function_of(backend::Scan scan, Dtype dtype) {
  if (scan == backend::Scan::kLogSumExp) return "logcumsumexp";
  return (scan == backend::Scan::kSum ? "cumsum_" : "cumprod_") + metal_name(dtype);
}

}  // namespace

Tensor backend::scanned(Scan scan, const Tensor& self, int32_t axis, Dtype dtype) {
  const Tensor from = converted(converted(self, dtype), wide(dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const Rows rows = rows_along(from, axis);
  Arguments arguments;
  arguments.add(from).add(to).add(rows.length).add(rows.inner);
  if (!to.empty()) {
    dispatch("scan", function_of(scan, to.dtype), arguments, threads_for(rows.count()));
  }
  return converted(to, dtype);
}

Chosen backend::extremes_so_far(const Tensor& self, int32_t axis, bool largest) {
  const Tensor from = converted(self, wide(self.dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const Tensor where = metal::empty_contiguous(Dtype::kInt64, from.sizes());
  const Rows rows = rows_along(from, axis);
  const int32_t sign = largest ? 1 : -1;
  Arguments arguments;
  arguments.add(from).add(to).add(where).add(rows.length).add(rows.inner).add(sign);
  if (!to.empty()) {
    dispatch("scan", "cumextreme_" + metal_name(to.dtype), arguments, threads_for(rows.count()));
  }
  return {converted(to, self.dtype), where};
}
