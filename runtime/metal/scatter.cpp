// Scattering along an axis on the device, in float32 or int64.
#include <array>
#include <limits>

#include "common/axes.h"
#include "common/copy.h"
#include "common/operators.h"
#include "metal/combine.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

constexpr int32_t kAxes = 8;  // that fit into an argument by value

// As scatter.metal has them.
struct Rows {
  int64_t length, target, stride;
  int32_t reduction, axes;
};

// A tensor of one value for every element.
Tensor constant(Dtype dtype, double value, std::span<const int64_t> sizes) {
  Tensor one = metal::empty_contiguous(dtype, {});
  Arguments arguments;
  arguments.add(one);
  if (dtype == Dtype::kFloat32) {
    arguments.add(static_cast<float>(value));
  } else if (value >= 0x1p63) {  // the next double to what int64 holds
    arguments.add(std::numeric_limits<int64_t>::max());
  } else {
    arguments.add(static_cast<int64_t>(value));
  }
  dispatch("scatter", "set_" + metal_name(dtype), arguments, 1);
  return broadcast(one, sizes);
}

// One pass over the index: out = out <reduction> source.
void pass(const Scatter& scatter, const Tensor& out, const Tensor& source, Reduction reduction) {
  const int32_t last = scatter.index.dimensions - 1;
  require(last <= kAxes, "scattering takes at most ", kAxes + 1, " axes, not ", scatter.index);
  const Tensor index = dense(with_axis_moved(scatter.index, scatter.axis, last));
  const Tensor target = with_axis_moved(out, scatter.axis, last);
  const Rows rows{index.size[last], target.size[last], target.stride[last],
                  static_cast<int32_t>(reduction), last};
  std::array<int64_t, kAxes> size{};
  std::array<int64_t, kAxes> stride{};
  int64_t count = 1;
  for (int32_t axis = 0; axis < last; ++axis) {
    size[axis] = index.size[axis];
    stride[axis] = target.stride[axis];
    count *= index.size[axis];
  }
  const Tensor values = dense(with_axis_moved(source, scatter.axis, last));
  if (is_worth_sorting(count, rows.length)) {
    const Tensor places = metal::empty_contiguous(Dtype::kInt64, index.sizes());
    Arguments arguments;
    arguments.add(places).add(index).add(rows).add(size).add(stride);
    dispatch("scatter", "list_places", arguments, threads_for(places));
    return combine_at(out, values, places, 1, reduction);
  }
  Arguments arguments;
  arguments.add(out).add(index).add(values).add(rows).add(size).add(stride);
  dispatch("scatter", "scatter_" + metal_name(out.dtype), arguments, threads_for(count));
}

// What combines with any value to that value.
double neutral(Reduction reduction, Dtype dtype) {
  const bool whole = dtype == Dtype::kInt64;
  const double largest = whole ? 0x1p63 : std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::kMultiply:
      return 1;
    case Reduction::kLargest:
      return -largest;
    case Reduction::kSmallest:
      return largest;
    default:
      return 0;
  }
}

void divide(const Scatter& scatter, const Tensor& sum) {
  const double start = scatter.include_self ? 1 : 0;
  const Tensor count = dense(constant(sum.dtype, start, sum.sizes()));
  pass(scatter, count, constant(sum.dtype, 1, scatter.index.sizes()), Reduction::kCount);
  Arguments arguments;
  arguments.add(sum).add(count);
  dispatch("scatter", "divide_" + metal_name(sum.dtype), arguments, threads_for(sum));
}

}  // namespace

Tensor backend::one_value(Dtype dtype, double value) {
  return converted(constant(wide(dtype), value, {}), dtype);
}

void backend::scatter(const Scatter& scatter) {
  const Dtype dtype = wide(scatter.self.dtype);
  const Tensor into = metal::empty_contiguous(dtype, scatter.self.sizes());
  metal::copy(scatter.self, into);
  if (!scatter.index.empty()) {
    const auto sizes = scatter.index.sizes();
    if (!scatter.include_self) {
      pass(scatter, into, constant(dtype, neutral(scatter.reduction, dtype), sizes),
           Reduction::kStore);
    }
    const bool mean = scatter.reduction == Reduction::kMean;
    pass(scatter, into, converted(scatter.source, dtype),
         mean ? Reduction::kAdd : scatter.reduction);
    if (mean) divide(scatter, into);
  }
  metal::copy(into, scatter.out);
}
