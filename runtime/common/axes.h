// Axes by number, as operators take them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/error.h"
#include "common/tensor.h"

namespace menagerie {

// A negative axis counts from the end; a tensor without axes has one row of one element, axis 0.
inline int32_t checked_axis(const Tensor& tensor, int64_t axis) {
  const int64_t axes = std::max(tensor.dimensions, 1);
  require(axis >= -axes && axis < axes, "axis ", axis, " is not in ", tensor);
  return static_cast<int32_t>(axis < 0 ? axis + axes : axis);
}

// A view whose axes from..to are turned by one, so that `from` comes to stand at `to`.
inline Tensor with_axis_moved(const Tensor& tensor, int32_t from, int32_t to) {
  Tensor view = tensor;
  const auto turn = [&](Extents& extents) {
    const auto first = extents.begin();
    if (from < to) std::rotate(first + from, first + from + 1, first + to + 1);
    if (from > to) std::rotate(first + to, first + from, first + from + 1);
  };
  turn(view.size);
  turn(view.stride);
  return view;
}

}  // namespace menagerie
