#include "common/scatter.h"

#include <algorithm>

#include "common/axes.h"
#include "common/error.h"

namespace menagerie {

Reduction reduction_named(std::string_view word) {
  if (word == "sum") return Reduction::kAdd;
  if (word == "prod") return Reduction::kMultiply;
  if (word == "mean") return Reduction::kMean;
  if (word == "amax") return Reduction::kLargest;
  if (word == "amin") return Reduction::kSmallest;
  fail("reduction '", word, "' is not known");
}

namespace {

// One axis of one element for a tensor without axes.
Tensor with_an_axis(const Tensor& tensor) {
  Tensor view = tensor;
  if (view.dimensions == 0) {
    view.dimensions = 1;
    view.size[0] = view.stride[0] = 1;
  }
  return view;
}

}  // namespace

Scatter checked_scatter(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& source) {
  require(std::ranges::equal(out.sizes(), self.sizes()) && out.dtype == self.dtype, "the result ",
          out, " has not the geometry of ", self);
  require(index.dtype == Dtype::kInt64, "the index must be int64, not ", index);
  require(source.dtype == self.dtype, "the source ", source, " has not the dtype of ", self);
  const int32_t axis = checked_axis(self, dim);
  Scatter scatter{with_an_axis(out), with_an_axis(self), with_an_axis(index), with_an_axis(source)};
  scatter.axis = axis;
  bool fits = scatter.index.dimensions == scatter.self.dimensions &&
              scatter.source.dimensions == scatter.self.dimensions;
  for (int32_t i = 0; fits && i < scatter.self.dimensions; ++i) {
    const int64_t size = scatter.index.size[i];
    fits = size <= scatter.source.size[i] && (i == axis || size <= scatter.self.size[i]);
  }
  require(index.empty() || scatter.self.size[axis] > 0, "there is nothing to write to along axis ",
          axis, " of ", self);
  require(fits || index.empty(), "the index ", index, " does not fit ", self, " and source ",
          source);
  scatter.source.size = scatter.index.size;  // its first elements along each axis
  return scatter;
}

}  // namespace menagerie
