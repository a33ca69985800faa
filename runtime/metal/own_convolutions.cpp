#include <algorithm>
#include <limits>

#include "metal/operands.h"
#include "metal/own_products.h"
#include "metal/tiles.h"

namespace menagerie::metal {
namespace {

// Kernels from this extent on are miscomputed (github.com/pytorch/pytorch, issues 188335 and
// 188359).
constexpr int64_t kWrongKernel = 256;
// So are outputs of a larger extent, before macOS 15.1 (the same, issue 129207).
constexpr int64_t kWrongExtent = 65536;

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
struct Places {
  int64_t image, channel, row, column;
};

Places places_of(const ConvolutionDescriptor& d) {
  const int64_t image = d.in_channels * d.in_height * d.in_width;
  if (d.input_layout == ImageLayout::kNchw) {
    return {image, d.in_height * d.in_width, d.in_width, 1};
  }
  return {image, 1, d.in_width * d.in_channels, d.in_channels};
}

Window window_of(const ConvolutionDescriptor& d) {
  return {narrow(d.kernel_height), narrow(d.kernel_width), narrow(d.stride[0]),
          narrow(d.stride[1]),     narrow(d.padding[0]),   narrow(d.padding[1]),
          narrow(d.dilation[0]),   narrow(d.dilation[1])};
}

bool is_plain(const ConvolutionDescriptor& d) { return d.groups == 1 && !d.transposed; }

// Of the product that a plain convolution is: of the taps and the places of one image.
ProductExtents extents_of(const ConvolutionDescriptor& d) {
  return {d.out_channels, d.out_height * d.out_width,
          d.in_channels * d.kernel_height * d.kernel_width, 1, d.has_bias ? 1.0F : 0.0F};
}

bool is_pointwise(const ConvolutionDescriptor& d) {
  const Window w = window_of(d);
  return w.height == 1 && w.width == 1 && w.stride_y == 1 && w.stride_x == 1 && w.padding_y == 0 &&
         w.padding_x == 0;
}

// The kernel's taps times what they see, which of a pointwise convolution is the image as it lies.
void encode_plain(const ConvolutionDescriptor& d, const ConvolutionOperands& operands,
                  const Factors& factors, const Finishing& finishing) {
  const ProductExtents p = extents_of(d);
  const Places places = places_of(d);
  Arguments arguments;
  arguments.add(operands.out).add(operands.weight).add(operands.input);
  arguments.add(d.has_bias ? operands.bias : operands.weight).add(p);  // is not read
  if (is_pointwise(d)) {
    arguments.add(MatrixStrides{0, p.k, 1})
        .add(MatrixStrides{places.image, places.channel, places.column});
    arguments.add(MatrixStrides{0, 1, 0});
    add_finish(arguments, finishing, operands.weight);
    if (factors.values.buffer == nullptr) {
      return dispatch_tiles("matrix_product", "multiply", arguments, p, d.batch, d.dtype);
    }
    arguments.add(factors.values).add(std::array{factors.image, factors.channel});
    return dispatch_tiles("matrix_product", "multiply_scaled", arguments, p, d.batch, d.dtype);
  }
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d)).add(places);
  require(p.n <= std::numeric_limits<int32_t>::max() && p.k <= std::numeric_limits<int32_t>::max(),
          "a convolution of ", p.n, " places by ", p.k, " taps");
  add_finish(arguments, finishing, operands.weight);
  dispatch_tiles("matrix_product", "convolve", arguments, p, d.batch, d.dtype);
}

void encode(const ConvolutionDescriptor& d, const ConvolutionOperands& operands,
            const Factors& factors, const Finishing& finishing) {
  require(d.output_layout == ImageLayout::kNchw, "a convolution into another layout than NCHW");
  if (is_plain(d)) return encode_plain(d, operands, factors, finishing);
  Arguments arguments;
  arguments.add(operands.out).add(operands.input).add(operands.weight);
  arguments.add(d.has_bias ? operands.bias : operands.weight);  // is not read
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d));
  arguments.add(Grouping{narrow(d.groups), d.transposed ? 1 : 0, d.has_bias ? 1 : 0});
  arguments.add(places_of(d));
  add_finish(arguments, finishing, operands.weight);
  dispatch("convolution", "convolve_elements_" + metal_name(d.dtype), arguments,
           threads_for(d.batch * d.out_channels * d.out_height * d.out_width));
}

// A depthwise convolution is slow as a grouped one (github.com/pytorch/pytorch, issue 94661).
bool is_own(const ConvolutionDescriptor& d) {
  const bool wrong = std::max(d.kernel_height, d.kernel_width) >= kWrongKernel ||
                     std::max({d.out_channels, d.out_height, d.out_width}) > kWrongExtent;
  if (wrong || (d.groups > 1 && d.groups == d.in_channels)) return true;
  const ProductExtents p = extents_of(d);
  const double operations = operations_of(d.batch, p.m, p.n, p.k);
  return is_plain(d) && !is_worth_a_graph(Work::kConvolution, operations);
}

}  // namespace

bool takes_factors(const ConvolutionDescriptor& d) {
  return is_own(d) && is_plain(d) && is_pointwise(d);
}

void product(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands,
             const Factors& factors, const Finishing& finishing) {
  if (is_own(descriptor)) return encode(descriptor, operands, factors, finishing);
  State::current().stream().convolution(descriptor, operands);
  finish_elements(operands.out, descriptor.dtype, descriptor.batch, descriptor.out_channels,
                  descriptor.out_height * descriptor.out_width, finishing);
}

}  // namespace menagerie::metal
