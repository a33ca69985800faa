// Rows of a tensor along one axis, for operators that treat each row by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "common/dtype.h"
#include "common/error.h"
#include "common/platform/threads.h"
#include "common/tensor.h"

namespace menagerie {

// Return the offsets, in elements, of the first element of every row along `axis`; none for an
// empty tensor, even one with many rows of no elements.
inline std::vector<int64_t> row_starts(const Tensor& tensor, int32_t axis) {
  if (tensor.dimensions == 0) return {0};
  if (tensor.empty()) return {};
  std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[axis] = 1;
  std::vector<int64_t> starts;
  for_each_index(sizes, [&](auto index) { starts.push_back(offset_of(tensor, index)); });
  return starts;
}

inline int64_t row_stride(const Tensor& tensor, int32_t axis) {
  return tensor.dimensions == 0 ? 1 : tensor.stride[axis];
}

// Call body(row) for every row, in parallel. The body may throw; the first error is rethrown.
template <class Body>
void for_each_row(size_t rows, Body&& body) {
  const auto count = static_cast<int64_t>(rows), pieces = int64_t{8} * threads::chosen();
  threads::for_each(count, count / pieces, [&](int64_t row) { body(static_cast<size_t>(row)); });
}

}  // namespace menagerie
