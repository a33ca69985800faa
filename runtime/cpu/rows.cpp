#include "cpu/rows.h"

#include "common/element.h"

namespace menagerie {

std::vector<int64_t> row_starts(const Tensor& tensor, int32_t axis) {
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

}  // namespace menagerie
