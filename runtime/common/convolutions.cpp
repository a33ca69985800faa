#include "common/convolutions.h"

#include <string_view>

#include "common/backend.h"
#include "common/error.h"

namespace menagerie {
namespace {

// A list with one number for all axes, or one for each.
void spread(std::array<int64_t, kMaxSpatial>& target, std::span<const int64_t> given,
            size_t spatial, int64_t least, std::string_view name) {
  require(given.size() == spatial || given.size() == 1, name, " has ", given.size(),
          " numbers for ", spatial, " axes");
  for (size_t i = 0; i < spatial; ++i) {
    target[i] = given[given.size() == 1 ? 0 : i];
    require(target[i] >= least, name, " ", target[i], " is less than ", least);
  }
}

int64_t output_size(const ConvolutionParameters& p, size_t i, int64_t input, int64_t window) {
  const int64_t reach = p.dilation[i] * (window - 1);
  if (p.transposed) {
    return (input - 1) * p.stride[i] - 2 * p.padding[i] + reach + p.output_padding[i] + 1;
  }
  const int64_t room = input + 2 * p.padding[i] - reach - 1;
  return room < 0 ? -1 : room / p.stride[i] + 1;
}

}  // namespace

ConvolutionParameters convolution_parameters(const Tensor& input,
                                             const ConvolutionNumbers& numbers) {
  ConvolutionParameters p;
  require(input.dimensions >= 3 && input.dimensions <= 5, "the input must have 3 to 5 axes, not ",
          input);
  p.spatial = static_cast<size_t>(input.dimensions) - 2;
  spread(p.stride, numbers.stride, p.spatial, 1, "stride");
  spread(p.padding, numbers.padding, p.spatial, 0, "padding");
  spread(p.dilation, numbers.dilation, p.spatial, 1, "dilation");
  spread(p.output_padding, numbers.output_padding, p.spatial, 0, "output padding");
  require(numbers.groups >= 1, "groups must be at least 1, not ", numbers.groups);
  p.transposed = numbers.transposed;
  p.groups = numbers.groups;
  return p;
}

std::vector<int64_t> convolution_sizes(const Tensor& input, const Tensor& weight,
                                       const Tensor* bias, const ConvolutionParameters& p) {
  const int64_t in = p.transposed ? weight.size[0] : weight.size[1] * p.groups;
  const int64_t out = p.transposed ? weight.size[1] * p.groups : weight.size[0];
  require(weight.dimensions == input.dimensions && input.size[1] == in && in % p.groups == 0 &&
              out % p.groups == 0,
          "input ", input, " and weight ", weight, " do not fit with ", p.groups, " groups");
  require(bias == nullptr || (bias->dimensions == 1 && bias->size[0] == out), "the bias must have ",
          out, " elements");
  require(input.dtype == weight.dtype && (bias == nullptr || bias->dtype == input.dtype), "input ",
          input, " and weight ", weight, " differ in dtype");
  std::vector<int64_t> sizes{input.size[0], out};
  for (size_t i = 0; i < p.spatial; ++i) {
    sizes.push_back(output_size(p, i, input.size[i + 2], weight.size[i + 2]));
    require(sizes.back() >= 0, "the window of weight ", weight, " is larger than input ", input);
  }
  return sizes;
}

void fill_with_bias(const Tensor& output, const Tensor* bias) {
  if (bias == nullptr) return backend::fill_zero(output);
  Tensor wide = *bias;
  wide.dimensions = output.dimensions - 1;  // [O, 1, ...], broadcast over the batch
  for (int32_t axis = 1; axis < wide.dimensions; ++axis) {
    wide.size[axis] = 1;
    wide.stride[axis] = 0;
  }
  backend::assign(wide, output);
}

}  // namespace menagerie
