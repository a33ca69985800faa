// The arguments of index and index_put, checked: which axes are indexed by what, and how the
// result's axes are arranged; and those of scatter operators.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/shim_types.h"
#include "common/tensor.h"

namespace menagerie {

struct Indices {
  std::vector<int32_t> axes;  // that are indexed, in order
  std::vector<Tensor> lists;  // one an axis: int64, broadcast to `sizes`
  std::vector<int64_t> sizes;
  bool adjacent = true;  // whether the indexed axes are neighbours

  int64_t count() const;  // of places
  // A tensor's axes with the indexed ones first, and back again.
  Tensor indexed_first(const Tensor& tensor) const;
  Tensor indexed_back(const Tensor& tensor) const;
  // A result [sizes..., other axes...] with its axes where torch puts them: in the place of the
  // first indexed axis where those are neighbours, else in front.
  Tensor arranged(const Tensor& result) const;
  // The sizes of [sizes..., other axes...] for such a tensor.
  std::vector<int64_t> result_sizes(const Tensor& self) const;
  // Values to be put, broadcast to the result and with its axes as in result_sizes().
  Tensor values_for(const Tensor& self, const Tensor& values) const;
};

// Reads a list of optional handles. A boolean mask stands for the lists of the places where it is
// true, which the host reads: finish() what may still write it before. Other index dtypes become
// int64 on the index' own device.
Indices indices_of(const Tensor& self, const AtenTensorHandle** handles, int64_t count);

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
