// Reading and writing elements by lists of positions on the device. What depends on values that the
// host must know is computed by the host, after the device has finished.
#include "common/backend.h"
#include "common/operators.h"
#include "metal/combine.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// A tensor [places, inner]: the indexed axes first, dense.
struct Places {
  Tensor list;  // int64, which places
  int64_t inner = 1;
};

Places places_of(const Tensor& first, const Indices& indices) {
  const int64_t length[] = {indices.count()};
  Places places{metal::empty_contiguous(Dtype::kInt64, length)};
  backend::fill_zero(places.list);
  const auto indexed = static_cast<int32_t>(indices.axes.size());
  for (int32_t axis = indexed; axis < first.dimensions; ++axis) places.inner *= first.size[axis];
  int64_t stride = 1;
  for (int32_t axis = indexed; axis-- > 0;) {
    Arguments arguments;
    arguments.add(places.list).add(dense(indices.lists[static_cast<size_t>(axis)]));
    arguments.add(first.size[axis]).add(stride);
    dispatch("indexing", "add_places", arguments, threads_for(places.list));
    stride *= first.size[axis];
  }
  return places;
}

void check_not_empty(const Tensor& first, const Indices& indices) {
  for (size_t axis = 0; axis < indices.axes.size(); ++axis) {
    require(first.size[axis] > 0 || indices.count() == 0, "there is nothing to index along axis ",
            indices.axes[axis]);
  }
}

}  // namespace

Tensor backend::read_at(const Tensor& self, const Indices& indices) {
  const Tensor first = dense(indices.indexed_first(self));
  const Tensor out = metal::empty_contiguous(self.dtype, indices.result_sizes(self));
  if (out.empty()) return dense(indices.arranged(out));
  check_not_empty(first, indices);
  const Places places = places_of(first, indices);
  Arguments arguments;
  arguments.add(first).add(out).add(places.list).add(places.inner);
  dispatch("indexing", "read_" + std::to_string(element_size(self.dtype)), arguments,
           threads_for(out));
  return dense(indices.arranged(out));
}

// Sums are made in float32 or int64.
Tensor backend::put_at(const Tensor& self, const Indices& indices, const Tensor& values,
                       bool accumulate) {
  const Dtype dtype = accumulate ? wide(self.dtype) : self.dtype;
  const Tensor first = indices.indexed_first(self);
  const Tensor into = metal::empty_contiguous(dtype, first.sizes());
  metal::copy(first, into);
  const Tensor from = converted(values, dtype);
  if (!from.empty()) {
    check_not_empty(first, indices);
    const Places places = places_of(into, indices);
    combine_at(into, from, places.list, places.inner,
               accumulate ? Reduction::kAdd : Reduction::kStore);
  }
  const Extents strides = strides_like(self);
  const Tensor out =
      metal::empty_strided(self.dtype, self.sizes(), {strides.data(), self.sizes().size()});
  metal::copy(indices.indexed_back(into), out);
  return out;
}
