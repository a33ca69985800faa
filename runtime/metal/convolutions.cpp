// Convolutions: which kernel computes one, and how each operand is stored.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "common/copy.h"
#include "common/operators.h"
#include "metal/operands.h"
#include "metal/products.h"

namespace menagerie::metal {
namespace {

// Of fewer channels of a group most of a tile would be empty.
constexpr int64_t kWorthTiles = 16;

// As the kernels have them.
struct Image {
  int32_t channels, height, width;
};
struct Window {
  int32_t height, width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
};
struct Grouping {
  int32_t groups, transposed, has_bias;
};
struct ImageStrides {
  uint32_t image;
  int32_t channel, row, column;
};

ImageStrides image_strides_of(const ConvolutionDescriptor& d) {
  const auto image = static_cast<uint32_t>(narrow(d.in_channels * d.in_height * d.in_width));
  counted(d.batch * image);
  if (d.input_layout == ImageLayout::kNchw) {
    return {image, narrow(d.in_height * d.in_width), narrow(d.in_width), 1};
  }
  return {image, 1, narrow(d.in_width * d.in_channels), narrow(d.in_channels)};
}

Window window_of(const ConvolutionDescriptor& d) {
  return {narrow(d.kernel_height), narrow(d.kernel_width), narrow(d.stride[0]),
          narrow(d.stride[1]),     narrow(d.padding[0]),   narrow(d.padding[1]),
          narrow(d.dilation[0]),   narrow(d.dilation[1])};
}

bool is_plain(const ConvolutionDescriptor& d) { return d.groups == 1 && !d.transposed; }

// Of the product that a group of a convolution is: of the taps and the places of one image.
ProductExtents extents_of(const ConvolutionDescriptor& d) {
  return {counted(d.out_channels / d.groups), counted(d.out_height * d.out_width),
          counted(d.in_channels / d.groups * d.kernel_height * d.kernel_width), 1,
          d.has_bias ? 1.0F : 0.0F};
}

bool is_pointwise(const ConvolutionDescriptor& d) {
  const Window w = window_of(d);
  return is_plain(d) && w.height == 1 && w.width == 1 && w.stride_y == 1 && w.stride_x == 1 &&
         w.padding_y == 0 && w.padding_x == 0;
}

// Whether each image is one place, and so a vector that the weight, a matrix, is multiplied by.
bool is_of_vectors(const ConvolutionDescriptor& d) {
  return is_pointwise(d) && d.out_height * d.out_width == 1;
}

// What each channel of an image is multiplied by before it is convolved; strides in elements.
struct Factors {
  Region values;  // without a buffer: nothing
  uint32_t image = 0, channel = 0;
};
// The kernel's taps times what they see, which of a pointwise convolution is the image as it lies.
void encode_tiles(const ConvolutionDescriptor& d, const ConvolutionOperands& operands,
                  const Factors& factors, const Finishing& finishing) {
  const ProductExtents p = extents_of(d);
  const ImageStrides strides = image_strides_of(d);
  const Addend bias{d.has_bias ? operands.bias : operands.weight, {0, 1, 0}};  // or is not read
  Arguments arguments(operands.out, operands.weight, operands.input, bias.values, p);
  const auto run = [&](const char* function) {
    arguments.add(bias.strides);
    dispatch_product(function, arguments, operands.out, bias, p, d.batch * d.groups, d.dtype,
                     finishing, d.groups == 1);
  };
  if (is_pointwise(d)) {
    const auto channel = static_cast<uint32_t>(strides.channel);
    const auto column = static_cast<uint32_t>(strides.column);
    arguments.add(MatrixStrides{0, p.k, 1}).add(MatrixStrides{strides.image, channel, column});
    const bool plain = factors.values.buffer == nullptr;
    arguments.add(plain ? operands.weight : factors.values);  // or is not read
    arguments.add(MatrixStrides{factors.image, factors.channel, 0});
    return run(plain ? "multiply" : "multiply_scaled");
  }
  arguments.add(Image{narrow(d.in_channels / d.groups), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d)).add(strides).add(counted(d.groups));
  run("convolve");
}

// A place knows as bits of 32 which rows and columns of the kernel it sees.
bool is_by_tiles(const ConvolutionDescriptor& d) {
  if (d.transposed || (d.groups > 1 && d.out_channels / d.groups < kWorthTiles)) return false;
  return is_pointwise(d) || d.kernel_height + d.kernel_width < 32;
}

// What names the kernel of a depthwise convolution whose window convolution.metal knows.
std::optional<std::string> constant_window_of(const ConvolutionDescriptor& d) {
  constexpr std::array<std::array<int64_t, 3>, 6> kKnown{
      {{1, 9, 1}, {3, 3, 1}, {3, 3, 2}, {5, 5, 1}, {5, 5, 2}, {7, 7, 1}}};
  const std::array<int64_t, 3> window{d.kernel_height, d.kernel_width, d.stride[1]};
  const bool own =
      (d.groups == d.in_channels || d.gated) && d.groups == d.out_channels && !d.transposed;
  const bool plain = d.input_layout == ImageLayout::kNchw && d.dilation[1] == 1 &&
                     (d.out_height == 1 || d.stride[0] == d.stride[1]) &&
                     (d.kernel_height == 1 || d.dilation[0] == 1);
  if (!own || !plain || std::ranges::find(kKnown, window) == kKnown.end()) return std::nullopt;
  std::string name;
  for (const int64_t size : window) name += "_" + std::to_string(size);
  return name;
}

void encode(const ConvolutionDescriptor& d, const ConvolutionOperands& operands,
            const Factors& factors, const Finishing& finishing) {
  if (is_by_tiles(d)) return encode_tiles(d, operands, factors, finishing);
  const auto window = constant_window_of(d);
  require(!d.gated || (window == "_1_9_1" && d.out_width == d.in_width &&
                       finishing.other.buffer != nullptr),
          "no kernel gates the input of such a convolution");
  Arguments arguments(operands.out, operands.input, operands.weight);
  arguments.add(d.has_bias ? operands.bias : operands.weight);  // is not read
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d));
  arguments.add(Grouping{narrow(d.groups), d.transposed ? 1 : 0, d.has_bias ? 1 : 0});
  arguments.add(image_strides_of(d));
  add_finish(arguments, finishing, operands.weight);
  const int64_t planes = d.batch * d.out_channels * d.out_height;
  if (window) {
    constexpr int64_t kEach = 4;  // elements of a row, of a thread
    const std::string kernel = d.gated ? "convolve_channels_gated_" : "convolve_channels_";
    return dispatch("convolution", kernel + metal_name(d.dtype) + *window, arguments,
                    threads_for(planes * static_cast<int64_t>(quotient(d.out_width, kEach))));
  }
  dispatch("convolution", "convolve_elements_" + metal_name(d.dtype), arguments,
           threads_for(planes * d.out_width));
}

// Each place of the input meets each tap if the convolution is transposed, else each of the output.
double operations_of(const ConvolutionDescriptor& d) {
  const int64_t places = d.transposed ? d.in_height * d.in_width : d.out_height * d.out_width;
  return metal::operations_of(d.batch, d.out_channels, places,
                              d.in_channels / d.groups * d.kernel_height * d.kernel_width);
}

// Whether the kernel of such a convolution multiplies as it reads.
bool takes_factors(const ConvolutionDescriptor& d) {
  return is_pointwise(d) && !is_for_library(operations_of(d));
}

// With factors only where the kernel takes them.
void compute(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands,
             const Factors& factors, const Finishing& finishing) {
  const auto key = [&] { return descriptor.key().add_bytes(&finishing.finish, sizeof(Finish)); };
  const double operations = operations_of(descriptor);
  const bool librarys =
      !descriptor.gated &&
      (is_for_library(operations) ||
       (factors.values.buffer == nullptr && State::current().is_repeated(operations, key)));
  if (!librarys) return encode(descriptor, operands, factors, finishing);
  Stream& stream = State::current().stream();
  stream.convolution(descriptor, operands);
  stream.for_library([&] {
    finish_elements(operands.out, descriptor.dtype, descriptor.batch, descriptor.out_channels,
                    descriptor.out_height * descriptor.out_width, finishing);
  });
  const bool parts = descriptor.groups == 1 && is_by_tiles(descriptor);
  if (parts && is_split(extents_of(descriptor), descriptor.batch)) return;
  if (finishing.reads(operands.out)) return;
  State::current().sample(key(), [&] { encode(descriptor, operands, factors, finishing); });
}

// The numbers of an image's two axes; an image of one axis has a height of one.
std::array<int64_t, 2> as_pair(const ConvolutionParameters& p,
                               const std::array<int64_t, kMaxSpatial>& numbers, int64_t missing) {
  return p.spatial == 1 ? std::array{missing, numbers[0]} : std::array{numbers[0], numbers[1]};
}

struct ImageOperand {
  Tensor tensor;
  ImageLayout layout;
};

ImageOperand image_of(const Tensor& tensor, bool rows) {
  const Extents last = channels_last_strides(tensor.sizes());
  const bool plain = tensor.is_contiguous();
  if (!rows && !plain && has_strides(tensor, {last.data(), 4})) return {tensor, ImageLayout::kNhwc};
  return {plain ? tensor : dense(tensor), ImageLayout::kNchw};
}

// The factor of each image's channels, as the images' kernels take it.
Factors factors_of(const Tensor* factor, const Tensor& input) {
  if (factor == nullptr) return {};
  require(factor->dtype == input.dtype, "the factor ", *factor, " does not have the dtype of ",
          input);
  const std::array sizes{input.size[0], input.size[1], int64_t{1}, int64_t{1}};
  const Tensor spread = broadcast(*factor, sizes);
  return {region_of(spread), counted(spread.stride[0]), counted(spread.stride[1])};
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

ConvolutionDescriptor descriptor_of(const ImageOperand& image, const Tensor& weight, bool has_bias,
                                    const ConvolutionParameters& p, const Tensor& output) {
  const auto& input = image.tensor;
  return {.dtype = input.dtype,
          .input_layout = image.layout,
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
          .has_bias = has_bias,
          .gated = is_gated(input, weight, p.groups)};
}

// All of them images; the output contiguous.
void encode(const Tensor& input, const Tensor* factor, const Tensor& weight, const Tensor* bias,
            const ConvolutionParameters& p, const Tensor& output, const Finishing& finishing) {
  ImageOperand image = image_of(input, is_gated(input, weight, p.groups));
  const Tensor taps = dense(weight);
  const Tensor offsets = bias == nullptr ? Tensor() : dense(*bias);
  ConvolutionDescriptor descriptor = descriptor_of(image, weight, bias != nullptr, p, output);
  Factors factors = factors_of(factor, input);
  if (factor != nullptr && !takes_factors(descriptor)) {
    image = {multiplied(input, factors), ImageLayout::kNchw};
    descriptor.input_layout = image.layout;
    factors = {};
  }
  if (is_of_vectors(descriptor) && factors.values.buffer == nullptr) {
    const auto channels = input.size[1], results = output.size[1];
    const Tensor addend = bias == nullptr ? Tensor() : matrices_of(offsets, 1, results, 1);
    return product(
        matrices_of(output, input.size[0], results, 1), matrices_of(taps, 1, results, channels),
        matrices_of(image.tensor, input.size[0], channels, 1),
        {bias == nullptr ? nullptr : &addend, 1, bias == nullptr ? 0.0F : 1.0F, finishing});
  }
  const Region none;
  compute(descriptor,
          {region_of(image.tensor), region_of(taps), bias == nullptr ? none : region_of(offsets),
           region_of(output)},
          factors, finishing);
}

}  // namespace

Tensor as_image(const Tensor& tensor) {
  if (tensor.dimensions == 4) return tensor;
  Tensor image = tensor;
  image.dimensions = 4;
  image.size = {tensor.size[0], tensor.size[1], 1, tensor.size[2]};
  image.stride = {tensor.stride[0], tensor.stride[1], 0, tensor.stride[2]};
  return image;
}

void convolve(const Tensor& input, const Tensor* factor, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Tensor& output, const Finishing& finishing) {
  const bool in_place = output.is_contiguous();
  const Tensor result = in_place ? output : metal::empty_contiguous(output.dtype, output.sizes());
  encode(as_image(input), factor, as_image(weight), bias, p, as_image(result), finishing);
  if (!in_place) metal::copy(result, output);
}

}  // namespace menagerie::metal

namespace menagerie {

// Always contiguous, as Inductor without layout optimisation counts on it.
Tensor backend::empty_convolution(const Tensor& input, const Tensor&,
                                  std::span<const int64_t> sizes) {
  if (!is_floating(input.dtype))
    return metal::empty_contiguous(input.dtype, sizes);  // the host does
  require(input.dimensions <= 4, "the device convolves along one or two axes, not ", input);
  require(input.dtype != Dtype::kFloat64,
          "the device convolves float32, float16 and bfloat16, not ", input);
  return metal::empty_contiguous(input.dtype, sizes);
}

void backend::convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
                       const ConvolutionParameters& p, const Tensor& output) {
  metal::convolve(input, nullptr, weight, bias, p, output, {});
}

}  // namespace menagerie
