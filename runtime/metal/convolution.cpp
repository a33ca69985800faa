// Convolutions: telling how each operand lies in memory; the device computes.
#include "metal/convolution.h"

#include <array>

#include "common/copy.h"
#include "common/operators.h"
#include "metal/copy.h"
#include "metal/own_products.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// The numbers of an image's two axes; an image of one axis has a height of one.
std::array<int64_t, 2> as_pair(const ConvolutionParameters& p,
                               const std::array<int64_t, kMaxSpatial>& numbers, int64_t missing) {
  return p.spatial == 1 ? std::array{missing, numbers[0]} : std::array{numbers[0], numbers[1]};
}

struct Image {
  Tensor tensor;
  ImageLayout layout;
};

Image image_of(const Tensor& tensor) {
  const Extents last = channels_last_strides(tensor.sizes());
  const bool plain = tensor.is_contiguous();
  if (!plain && has_strides(tensor, {last.data(), 4})) return {tensor, ImageLayout::kNhwc};
  return {plain ? tensor : dense(tensor), ImageLayout::kNchw};
}

// The factor of each image's channels, as the images' kernels take it.
Factors factors_of(const Tensor* factor, const Tensor& input) {
  if (factor == nullptr) return {};
  require(factor->dtype == input.dtype, "the factor ", *factor, " has not the dtype of ", input);
  const std::array sizes{input.size[0], input.size[1], int64_t{1}, int64_t{1}};
  const Tensor spread = broadcast(*factor, sizes);
  return {region_of(spread), spread.stride[0], spread.stride[1]};
}

// The images multiplied, in memory of their own.
Tensor multiplied(const Tensor& input, const Factors& factors) {
  const Tensor fresh = metal::empty_contiguous(input.dtype, input.sizes());
  metal::copy(input, fresh);
  const Finishing multiply =
      multiplication_by(factors.values, {factors.image, factors.channel, 0, 0, 1});
  const auto& size = input.size;
  finish_elements(region_of(fresh), input.dtype, size[0], size[1], size[2] * size[3], multiply);
  return fresh;
}

ConvolutionDescriptor descriptor_of(const Image& image, const Tensor& weight, bool has_bias,
                                    const ConvolutionParameters& p, const Tensor& output) {
  const auto& input = image.tensor;
  return {.dtype = input.dtype,
          .input_layout = image.layout,
          .output_layout = ImageLayout::kNchw,
          .batch = input.size[0],
          .in_channels = input.size[1],
          .in_height = input.size[2],
          .in_width = input.size[3],
          .out_channels = output.size[1],
          .out_height = output.size[2],
          .out_width = output.size[3],
          .kernel_height = weight.size[2],
          .kernel_width = weight.size[3],
          .stride = as_pair(p, p.stride, 1),
          .padding = as_pair(p, p.padding, 0),
          .dilation = as_pair(p, p.dilation, 1),
          .output_padding = as_pair(p, p.output_padding, 0),
          .transposed = p.transposed,
          .groups = p.groups,
          .has_bias = has_bias};
}

// All of them images; the output contiguous.
void encode(const Tensor& input, const Tensor* factor, const Tensor& weight, const Tensor* bias,
            const ConvolutionParameters& p, const Tensor& output, const Finishing& finishing) {
  Image image = image_of(input);
  const Tensor taps = dense(weight);
  const Tensor offsets = bias == nullptr ? Tensor() : dense(*bias);
  ConvolutionDescriptor descriptor = descriptor_of(image, weight, bias != nullptr, p, output);
  Factors factors = factors_of(factor, input);
  if (factor != nullptr && !takes_factors(descriptor)) {
    image = {multiplied(input, factors), ImageLayout::kNchw};
    descriptor.input_layout = image.layout;
    factors = {};
  }
  const Region none;
  product(descriptor,
          {region_of(image.tensor), region_of(taps), bias == nullptr ? none : region_of(offsets),
           region_of(output)},
          factors, finishing);
}

}  // namespace

// Always contiguous, as Inductor without layout optimisation counts on it.
Tensor backend::empty_convolution(const Tensor& input, const Tensor&,
                                  std::span<const int64_t> sizes) {
  require(input.dimensions <= 4, "the device convolves along one or two axes, not ", input);
  require(is_floating(input.dtype) && input.dtype != Dtype::kFloat64,
          "the device convolves float32, float16 and bfloat16, not ", input);
  return metal::empty_contiguous(input.dtype, sizes);
}

Tensor metal::as_image(const Tensor& tensor) {
  if (tensor.dimensions == 4) return tensor;
  Tensor image = tensor;
  image.dimensions = 4;
  image.size = {tensor.size[0], tensor.size[1], 1, tensor.size[2]};
  image.stride = {tensor.stride[0], tensor.stride[1], 0, tensor.stride[2]};
  return image;
}

void metal::convolve(const Tensor& input, const Tensor* factor, const Tensor& weight,
                     const Tensor* bias, const ConvolutionParameters& p, const Tensor& output,
                     const Finishing& finishing) {
  const bool in_place = output.is_contiguous();
  const Tensor result = in_place ? output : metal::empty_contiguous(output.dtype, output.sizes());
  encode(as_image(input), factor, as_image(weight), bias, p, as_image(result), finishing);
  if (!in_place) metal::copy(result, output);
}

void backend::convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
                       const ConvolutionParameters& p, const Tensor& output) {
  metal::convolve(input, nullptr, weight, bias, p, output, {});
}
