// Checked arguments of index and index_put: which axes are indexed by which lists, and how the
// result's axes are arranged; also the arguments of scatter operators.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/shim_types.h"
#include "common/tensor.h"

namespace menagerie {

struct Indices {
  std::vector<int32_t> axes;  // the indexed axes, in order
  std::vector<Tensor> lists;  // one per axis: int64, broadcast to `sizes`
  std::vector<int64_t> sizes;
  bool adjacent = true;  // whether the indexed axes are neighbours

  int64_t count() const;  // of positions
  // Move a tensor's indexed axes to the front, and back again.
  Tensor indexed_first(const Tensor& tensor) const;
  Tensor indexed_back(const Tensor& tensor) const;
  // Return a result [sizes..., other axes...] with its axes where torch puts them: at the first
  // indexed axis if the indexed axes are neighbours, else in front.
  Tensor arranged(const Tensor& result) const;
  // Return the sizes of [sizes..., other axes...] for such a tensor.
  std::vector<int64_t> result_sizes(const Tensor& self) const;
  // Return values to put, broadcast to the result, with axes as in result_sizes().
  Tensor values_for(const Tensor& self, const Tensor& values) const;
};

// Read a list of optional handles. A boolean mask becomes the lists of the positions where it is
// true; the host reads it after what may still write it has finished. Other index dtypes become
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

// Parse torch's word: sum, prod, mean, amax, amin.
Reduction reduction_named(std::string_view word);

// out = self, with the elements that the index selects along an axis combined with the source's.
struct Scatter {
  Tensor out, self, index, source;  // the source has the sizes of the index
  int32_t axis = 0;
  Reduction reduction = Reduction::kStore;
  bool include_self = true;  // else an element drops its own value before it is combined
};

// Return a checked scatter; fail unless the operands fit. A source may be larger than the index.
Scatter checked_scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& source);

}  // namespace menagerie
