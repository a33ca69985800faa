// The arguments of scatter operators, checked.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/tensor.h"

namespace menagerie {

enum class Reduction : int32_t {  // as metal/kernels/reductions.h numbers them
  kStore = 0,
  kAdd = 1,
  kMultiply = 2,
  kLargest = 3,
  kSmallest = 4,
  kCount = 5,
  kMean = 6,  // a sum, divided by a count
};

// Of torch's words: sum, prod, mean, amax, amin.
Reduction reduction_named(std::string_view word);

// out = self with, along an axis, the elements that the index names combined with the source's.
struct Scatter {
  Tensor out, self, index, source;  // the source of the index' sizes
  int32_t axis = 0;
  Reduction reduction = Reduction::kStore;
  bool include_self = true;  // else what is combined with forgets its own value first
};

// Fails unless they fit; a source may be larger than the index.
Scatter checked_scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& source);

}  // namespace menagerie
