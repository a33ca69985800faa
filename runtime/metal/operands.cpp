#include "metal/operands.h"

#include <limits>

#include "common/error.h"

namespace menagerie::metal {

std::string metal_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kUInt8:
      return "uchar";
    case Dtype::kInt8:
      return "char";
    case Dtype::kInt16:
      return "short";
    case Dtype::kInt32:
      return "int";
    case Dtype::kInt64:
      return "long";
    case Dtype::kFloat16:
      return "half";
    case Dtype::kFloat32:
      return "float";
    case Dtype::kBool:
      return "bool";
    case Dtype::kBFloat16:
      return "bfloat";
    default:
      fail("Metal has no ", info(dtype).name);
  }
}

Tensor converted(const Tensor& tensor, Dtype dtype) {
  if (tensor.dtype == dtype) return dense(tensor);
  Tensor fresh = metal::empty_contiguous(dtype, tensor.sizes());
  metal::copy(tensor, fresh);
  return fresh;
}

Dtype wide(Dtype dtype) {
  require(dtype != Dtype::kFloat64, "Metal has no float64");
  return is_floating(dtype) ? Dtype::kFloat32 : Dtype::kInt64;
}

Rows rows_along(const Tensor& tensor, int32_t axis) {
  Rows rows;
  for (int32_t i = 0; i < tensor.dimensions; ++i) {
    (i < axis ? rows.outer : i > axis ? rows.inner : rows.length) *= tensor.size[i];
  }
  return rows;
}

int32_t narrow(int64_t extent) {
  require(extent >= 0 && extent <= std::numeric_limits<int32_t>::max(), "an extent of ", extent,
          " is more than a kernel over images counts");
  return static_cast<int32_t>(extent);
}

uint64_t threads_for(int64_t elements) {
  require(elements >= 0 && elements <= UINT32_MAX, elements, " threads are more than a kernel has");
  return static_cast<uint64_t>(elements);
}

uint64_t threads_for(const Tensor& tensor) { return threads_for(tensor.elements()); }

}  // namespace menagerie::metal
