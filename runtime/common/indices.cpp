#include "common/indices.h"

#include <algorithm>

#include "common/backend.h"
#include "common/copy.h"
#include "common/error.h"
#include "common/host_operators.h"
#include "common/shim_support.h"
#include "common/tensor.h"

namespace menagerie {
namespace {

// Return one mask as lists, one for each axis that it covers from `axis` on.
std::vector<Tensor> lists_of_mask(const Tensor& self, const Tensor& mask, int32_t axis) {
  require(mask.dimensions >= 1 && axis + mask.dimensions <= self.dimensions &&
              std::equal(mask.size.begin(), mask.size.begin() + mask.dimensions,
                         self.size.begin() + axis),
          "the mask ", mask, " does not fit axis ", axis, " of ", self);
  if (mask.storage->is_on_device()) backend::finish();
  return host::places(mask);
}

Tensor as_int64(const Tensor& index) {
  if (index.dtype == Dtype::kInt64) return index;
  require(index.dtype == Dtype::kInt32, index, " is not an index: it must be int64 or int32");
  const Tensor wide = host::empty_beside(index, Dtype::kInt64, index.sizes());
  backend::assign(index, wide);
  return wide;
}

// Return a view with the first `first` axes moved behind the `second` axes that follow them.
Tensor exchanged(const Tensor& tensor, size_t first, size_t second) {
  Tensor view = tensor;
  for (Extents* each : {&view.size, &view.stride}) {
    std::rotate(each->begin(), each->begin() + first, each->begin() + first + second);
  }
  return view;
}

// Return how many axes torch puts before those of the positions.
size_t axes_in_front(const Indices& indices) {
  return indices.adjacent && !indices.axes.empty() ? indices.axes.front() : 0;
}

}  // namespace

int64_t Indices::count() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

Tensor Indices::indexed_first(const Tensor& tensor) const {
  Tensor view = tensor;
  for (size_t i = 0; i < axes.size(); ++i) {
    view = with_axis_moved(view, axes[i], static_cast<int32_t>(i));
  }
  return view;
}

Tensor Indices::indexed_back(const Tensor& tensor) const {
  Tensor view = tensor;
  for (size_t i = axes.size(); i-- > 0;) {
    view = with_axis_moved(view, static_cast<int32_t>(i), axes[i]);
  }
  return view;
}

Tensor Indices::arranged(const Tensor& result) const {
  return exchanged(result, sizes.size(), axes_in_front(*this));
}

std::vector<int64_t> Indices::result_sizes(const Tensor& self) const {
  std::vector<int64_t> all = sizes;
  const Tensor first = indexed_first(self);
  all.insert(all.end(), first.size.begin() + axes.size(), first.size.begin() + first.dimensions);
  require(all.size() <= kMaxDimensions, "the result of indexing ", self, " has too many axes");
  return all;
}

Tensor Indices::values_for(const Tensor& self, const Tensor& values) const {
  require(values.dtype == self.dtype, "the values ", values, " and ", self, " differ in dtype");
  Tensor shape;
  const std::vector<int64_t> all = result_sizes(self);
  shape.dimensions = static_cast<int32_t>(all.size());
  std::ranges::copy(all, shape.size.begin());
  return exchanged(broadcast(values, arranged(shape).sizes()), axes_in_front(*this), sizes.size());
}

Indices indices_of(const Tensor& self, const AtenTensorHandle** handles, int64_t count) {
  Indices indices;
  int32_t axis = 0;
  for (const AtenTensorHandle* handle : list(handles, count)) {
    std::vector<Tensor> lists;
    if (handle != nullptr && *handle != nullptr) {
      const Tensor& index = operand(*handle);
      if (index.dtype == Dtype::kBool || index.dtype == Dtype::kUInt8) {
        lists = lists_of_mask(self, index, axis);
      } else {
        lists.push_back(as_int64(index));
      }
    }
    const int32_t covered = std::max<int32_t>(1, static_cast<int32_t>(lists.size()));
    require(axis + covered <= self.dimensions, "more indices than axes of ", self);
    for (Tensor& found : lists) {
      if (!indices.axes.empty() && indices.axes.back() != axis - 1) indices.adjacent = false;
      indices.axes.push_back(axis++);
      indices.lists.push_back(std::move(found));
    }
    if (lists.empty()) ++axis;
  }
  indices.sizes = broadcast_sizes(indices.lists);
  for (Tensor& found : indices.lists) found = broadcast(found, indices.sizes);
  return indices;
}

Reduction reduction_named(std::string_view word) {
  if (word == "sum") return Reduction::kAdd;
  if (word == "prod") return Reduction::kMultiply;
  if (word == "mean") return Reduction::kMean;
  if (word == "amax") return Reduction::kLargest;
  if (word == "amin") return Reduction::kSmallest;
  fail("reduction '", word, "' is not known");
}

namespace {

// Return a tensor without axes as one with a single axis of one element.
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
          out, " does not have the geometry of ", self);
  require(source.dtype == self.dtype, "the source ", source, " does not have the dtype of ", self);
  const int32_t axis = checked_axis(self, dim);
  Scatter scatter{with_an_axis(out), with_an_axis(self), with_an_axis(as_int64(index)),
                  with_an_axis(source)};
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
