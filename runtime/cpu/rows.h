// Rows of a tensor along one axis, for operators that treat each row by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "common/dtype.h"
#include "common/error.h"
#include "common/platform/threads.h"
#include "common/tensor.h"

namespace menagerie {

// Offsets in elements of the first element of every row along `axis`; none of an empty tensor, also
// where its rows are many and of no element.
inline std::vector<int64_t> row_starts(const Tensor& tensor, int32_t axis) {
  if (tensor.dimensions == 0) return {0};
  if (tensor.empty()) return {};
  std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[axis] = 1;
  std::vector<int64_t> starts;
  for_each_index(sizes, [&](std::span<const int64_t> index) {
    int64_t offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.stride[i];
    starts.push_back(offset);
  });
  return starts;
}

inline int64_t row_length(const Tensor& tensor, int32_t axis) {
  return tensor.dimensions == 0 ? 1 : tensor.size[axis];
}
inline int64_t row_stride(const Tensor& tensor, int32_t axis) {
  return tensor.dimensions == 0 ? 1 : tensor.stride[axis];
}

// Calls body(row) for every row, in parallel. The body may throw; the first error is thrown again.
template <class Body>
void for_each_row(size_t rows, Body&& body) {
  const size_t pieces = 8 * static_cast<size_t>(threads::chosen());
  threads::share_out(rows, rows / pieces, [&](threads::Tasks& tasks) {
    for (size_t row = 0, end = 0; tasks.take(row, end);) {
      for (; row < end; ++row) body(row);
    }
  });
}

}  // namespace menagerie
