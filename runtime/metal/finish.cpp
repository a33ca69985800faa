#include "metal/finish.h"

#include "common/copy.h"
#include "metal/operands.h"

namespace menagerie::metal {
namespace {

// As kernels/finish.h has them.
constexpr int32_t kAdd = 11, kMultiply = 12;

Beside beside_of(const Tensor& other) {
  const auto& stride = other.stride;
  switch (other.dimensions) {
    case 2:
      return {0, stride[0], stride[1], 0, 1};
    case 3:
      return {stride[0], stride[1], stride[2], 0, 1};
    default:
      return {stride[0], stride[1], stride[2], stride[3], static_cast<int32_t>(other.size[3])};
  }
}

}  // namespace

// A row is the first one, and a column is what the row was: `down` steps over it.
Finishing Finishing::turned() const {
  Finishing swapped = *this;
  swapped.beside.down = beside.row;
  swapped.beside.row = beside.down;
  return swapped;
}

Finishing finishing_of(std::span<const int64_t> steps, std::span<const double> low,
                       std::span<const double> high, const Tensor* other, const Tensor& result) {
  require(steps.size() <= kMostSteps && low.size() == steps.size() && high.size() == steps.size(),
          "a product is followed by ", steps.size(), " steps with ", low.size(), " and ",
          high.size(), " numbers; ", kMostSteps, " are the most");
  Finishing finishing;
  finishing.finish.count = static_cast<int32_t>(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    require(steps[i] >= 0 && steps[i] <= kMultiply, "there is no step ", steps[i]);
    require(other != nullptr || steps[i] < kAdd, "step ", steps[i], " has no operand");
    finishing.finish.steps[i] = static_cast<int32_t>(steps[i]);
    finishing.finish.low[i] = static_cast<float>(low[i]);
    finishing.finish.high[i] = static_cast<float>(high[i]);
  }
  if (other == nullptr) return finishing;
  require(other->dtype == result.dtype, "the operand ", *other, " has not the dtype of ", result);
  const Tensor spread = broadcast(*other, result.sizes());
  finishing.other = region_of(spread);
  finishing.beside = beside_of(spread);
  return finishing;
}

Finishing multiplication_by(const Region& other, const Beside& beside) {
  return {.finish = {.count = 1, .steps = {kMultiply}}, .other = other, .beside = beside};
}

void add_finish(Arguments& arguments, const Finishing& finishing, const Region& unread) {
  arguments.add(finishing.other.buffer == nullptr ? unread : finishing.other);
  arguments.add(finishing.finish).add(finishing.beside);
}

void finish_elements(const Region& values, Dtype dtype, int64_t batch, int64_t rows,
                     int64_t columns, const Finishing& finishing) {
  if (finishing.is_nothing()) return;
  Arguments arguments;
  arguments.add(values).add(rows).add(columns);
  add_finish(arguments, finishing, values);
  dispatch("finish", "finish_elements_" + metal_name(dtype), arguments,
           threads_for(batch * rows * columns));
}

}  // namespace menagerie::metal
