// Pooling over images and volumes on the device.
#include <array>

#include "common/operators.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As pooling.metal has them.
struct PoolShape {
  std::array<int32_t, 3> input, output, window, stride;
};
struct Reach {
  std::array<int32_t, 3> padding, dilation;
  int32_t count_padding = 0;
  int32_t divisor = 0;
};

PoolShape shape_of(const Windows& windows) {
  PoolShape shape{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const PooledAxis& of = windows.axes[axis];
    shape.input[axis] = narrow(of.input);
    shape.output[axis] = narrow(of.output);
    shape.window[axis] = of.adaptive ? 0 : narrow(of.window);
    shape.stride[axis] = narrow(of.stride);
  }
  return shape;
}

Reach reach_of(const Windows& windows) {
  Reach reach{};
  for (size_t axis = 0; axis < 3; ++axis) {
    reach.padding[axis] = narrow(windows.axes[axis].padding);
    reach.dilation[axis] = narrow(windows.axes[axis].dilation);
  }
  return reach;
}

Tensor empty_result(const Tensor& self, const PooledGeometry& geometry, Dtype dtype) {
  return metal::empty_contiguous(dtype, {geometry.sizes.data(), self.sizes().size()});
}

// A result as the kernels write it, brought where it shall lie.
Tensor settled(const Tensor& result, const PooledGeometry& geometry) {
  return with_strides(result, {geometry.strides.data(), result.sizes().size()});
}

}  // namespace

Tensor backend::average(const Tensor& self, const Windows& windows, const PooledGeometry& geometry,
                        bool count_padding, std::optional<int64_t> divisor) {
  require(is_floating(self.dtype) || self.dtype == Dtype::kInt64, "averages are not of ", self);
  Reach reach = reach_of(windows);
  reach.count_padding = count_padding ? 1 : 0;
  reach.divisor = static_cast<int32_t>(divisor.value_or(0));
  require(reach.divisor == divisor.value_or(0), "the divisor ", *divisor, " is too large");
  const Tensor out = empty_result(self, geometry, self.dtype);
  dispatch("pooling", "average_" + metal_name(self.dtype),
           Arguments(dense(self), out, shape_of(windows), reach), threads_for(out));
  return settled(out, geometry);
}

ValuesAndIndices backend::largest(const Tensor& self, const Windows& windows,
                                  const PooledGeometry& geometry) {
  const Dtype computed = is_floating(self.dtype) ? self.dtype : Dtype::kInt64;
  const Tensor out = empty_result(self, geometry, computed);
  const Tensor where = empty_result(self, geometry, Dtype::kInt64);
  const Arguments arguments(converted(self, computed), out, where, shape_of(windows),
                            reach_of(windows));
  dispatch("pooling", "largest_" + metal_name(computed), arguments, threads_for(out));
  return {settled(converted(out, self.dtype), geometry), settled(where, geometry)};
}
