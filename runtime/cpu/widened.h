// Half precision on the CPU: few processors compute in it, so single precision does, and the result
// is rounded once.
#pragma once

#include "common/copy.h"
#include "common/tensor.h"

namespace menagerie {

inline bool is_half(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16; }

// The same values in float32, contiguous.
inline Tensor widened(const Tensor& tensor) {
  Tensor wide = empty_contiguous(Dtype::kFloat32, tensor.sizes());
  assign(tensor, wide);
  return wide;
}

}  // namespace menagerie
