// What follows a product: the arguments of kernels, and the products and convolutions with it that
// lowering asks for (transforms/passes/metal/fuse_epilogues.py).
#include "metal/epilogue.h"

#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/windows.h"
#include "metal/operands.h"
#include "metal/products.h"

namespace menagerie::metal {
namespace {

Beside beside_of(const Tensor& other) {
  const auto& stride = other.stride;
  int64_t last = 1;
  for (int32_t axis = 0; axis < other.dimensions; ++axis) {
    last += (other.size[axis] - 1) * stride[axis];
  }
  counted(last);
  const auto of = [&](int64_t batch, int32_t row, int32_t column) {
    return Beside{counted(batch), counted(stride[row]), counted(stride[column]), 0, 1};
  };
  if (other.dimensions == 2) return of(0, 0, 1);
  if (other.dimensions == 3) return of(stride[0], 1, 2);
  if (other.size[2] == 1 || stride[2] == other.size[3] * stride[3]) return of(stride[0], 1, 3);
  return {counted(stride[0]), counted(stride[1]), counted(stride[2]), counted(stride[3]),
          counted(other.size[3])};
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
          high.size(), " numbers; ", int{kMostSteps}, " are the most");
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
  require(other->dtype == result.dtype, "the operand ", *other, " does not have the dtype of ",
          result);
  const Tensor spread = broadcast(*other, result.sizes());
  finishing.other = region_of(spread);
  finishing.beside = beside_of(spread);
  return finishing;
}

Finishing multiplication_by(const Region& other, const Beside& beside) {
  return {.finish = {1, {kMultiply}, {}, {}}, .other = other, .beside = beside};
}

void add_finish(Arguments& arguments, const Finishing& finishing, const Region& unread) {
  arguments.add(finishing.other.buffer == nullptr ? unread : finishing.other);
  arguments.add(finishing.finish).add(finishing.beside);
}

void finish_elements(const Region& values, Dtype dtype, int64_t batch, int64_t rows,
                     int64_t columns, const Finishing& finishing) {
  if (finishing.is_nothing()) return;
  Arguments arguments(values, rows, columns);
  add_finish(arguments, finishing, values);
  dispatch("finish", "finish_elements_" + metal_name(dtype), arguments,
           threads_for(batch * rows * columns));
}

}  // namespace menagerie::metal

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// [.., M, N] for [.., M, K] and [.., K, N].
Tensor empty_product(const Tensor& a, const Tensor& b) {
  const int32_t rank = a.dimensions;
  const bool ranks = (rank == 2 || rank == 3) && b.dimensions == rank;
  require(ranks && a.size[rank - 1] == b.size[rank - 2] && (rank == 2 || a.size[0] == b.size[0]),
          "shapes do not fit: ", a, " x ", b);
  require(is_floating(a.dtype) && a.dtype != Dtype::kFloat64 && a.dtype == b.dtype,
          "dtypes differ, or are not floating: ", a, " x ", b);
  const std::array<int64_t, 3> sizes{a.size[0], rank == 3 ? a.size[1] : b.size[1], b.size[2]};
  return metal::empty_contiguous(a.dtype, {sizes.data(), static_cast<size_t>(rank)});
}

}  // namespace

MENAGERIE_SHIM aoti_torch_mps_finished_product(AtenTensorHandle a, AtenTensorHandle b,
                                               AtenTensorHandle* bias, const int64_t* steps,
                                               int64_t steps_len_, const double* low,
                                               int64_t low_len_, const double* high,
                                               int64_t high_len_, AtenTensorHandle* other,
                                               AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor out = empty_product(operand(a), operand(b));
    const Tensor* added = optional_operand(bias);
    const Finishing finishing = finishing_of(numbers(steps, steps_len_), list(low, low_len_),
                                             list(high, high_len_), optional_operand(other), out);
    if (!out.empty()) {
      metal::multiply(out, operand(a), operand(b), added, added == nullptr ? 0 : 1, 1, finishing);
    }
    *ret0 = to_handle(out);
  });
}

MENAGERIE_SHIM aoti_torch_mps_finished_convolution(
    AtenTensorHandle input, AtenTensorHandle* factor, AtenTensorHandle weight,
    AtenTensorHandle* bias, const int64_t* stride, int64_t stride_len_, const int64_t* padding,
    int64_t padding_len_, const int64_t* dilation, int64_t dilation_len_, int64_t groups,
    const int64_t* steps, int64_t steps_len_, const double* low, int64_t low_len_,
    const double* high, int64_t high_len_, AtenTensorHandle* other, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(input);
    const Tensor& w = operand(weight);
    Tensor seen = x;
    if (metal::is_gated(x, w, groups)) seen.size[1] = groups;
    const Tensor* b = optional_operand(bias);
    const std::array<int64_t, 1> none{0};
    const ConvolutionParameters p =
        convolution_parameters(seen, {.stride = numbers(stride, stride_len_),
                                      .padding = numbers(padding, padding_len_),
                                      .dilation = numbers(dilation, dilation_len_),
                                      .output_padding = none,
                                      .transposed = false,
                                      .groups = groups});
    const Tensor output = backend::empty_convolution(seen, w, convolution_sizes(seen, w, b, p));
    const Tensor image = as_image(output);
    const Tensor* beside = optional_operand(other);
    const Tensor spread =
        beside == nullptr ? Tensor() : as_image(broadcast(*beside, output.sizes()));
    const Finishing finishing =
        finishing_of(numbers(steps, steps_len_), list(low, low_len_), list(high, high_len_),
                     beside == nullptr ? nullptr : &spread, image);
    if (x.empty() || w.empty()) {
      fill_with_bias(output, b);
      finish_elements(region_of(output), output.dtype, image.size[0], image.size[1],
                      image.size[2] * image.size[3], finishing);
    } else if (!output.empty()) {
      metal::convolve(x, optional_operand(factor), w, b, p, output, finishing);
    }
    *ret0 = to_handle(output);
  });
}
