#include "metal/own_products.h"

#include <algorithm>
#include <limits>

#include "metal/dispatch.h"
#include "metal/operands.h"

namespace menagerie::metal {
namespace {

// On M1 and M2 MPSGraph reads past the operands of such products (github.com/pytorch/pytorch,
// issues 195163 and 193487).
constexpr int64_t kWrongInner = 32767;
constexpr int64_t kWrongOuter = 16;
// Kernels from this extent on are miscomputed (the same, issues 188335 and 188359).
constexpr int64_t kWrongKernel = 256;
// So are outputs of a larger extent, before macOS 15.1 (the same, issue 129207).
constexpr int64_t kWrongExtent = 65536;

constexpr uint64_t kTile = 16;

// As products.metal has them.
struct Extents {
  int64_t m, n, k;
  float alpha, beta;
};
struct Strides {
  int64_t batch, row, column;
};
struct Image {
  int32_t channels, height, width;
};
struct Window {
  int32_t height, width, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
  int32_t groups, transposed, has_bias;
};
struct Places {
  int64_t image, channel, row, column;
};

Strides strides_of(int64_t batches, int64_t rows, int64_t columns, bool transposed) {
  const int64_t batch = batches == 1 ? 0 : rows * columns;
  return transposed ? Strides{batch, 1, rows} : Strides{batch, columns, 1};
}

Strides strides_of(const std::array<int64_t, 3>& size) {
  return {size[0] == 1 ? 0 : size[1] * size[2], size[1] == 1 ? 0 : size[2], size[2] == 1 ? 0 : 1};
}

uint64_t whole_tiles(int64_t size) {
  return (static_cast<uint64_t>(size) + kTile - 1) / kTile * kTile;
}

void encode(const MatmulDescriptor& d, const MatmulOperands& operands) {
  Arguments arguments;
  arguments.add(operands.out).add(operands.a).add(operands.b);
  arguments.add(d.addend.has_value() ? operands.addend : operands.a);  // is not read
  arguments.add(Extents{d.m, d.n, d.k, d.alpha, d.addend.has_value() ? d.beta : 0});
  arguments.add(strides_of(d.a_batch, d.m, d.k, d.a_transposed));
  arguments.add(strides_of(d.b_batch, d.k, d.n, d.b_transposed));
  arguments.add(strides_of(d.addend.value_or(std::array<int64_t, 3>{1, 1, 1})));
  dispatch("products", "multiply_" + metal_name(d.dtype), arguments,
           Grid{{whole_tiles(d.n), whole_tiles(d.m), static_cast<uint64_t>(d.batch)},
                {kTile, kTile, 1}});
}

int32_t narrow(int64_t number) {
  require(number >= 0 && number <= std::numeric_limits<int32_t>::max(),
          "a convolution with an extent of ", number);
  return static_cast<int32_t>(number);
}

Places places_of(const ConvolutionDescriptor& d) {
  const int64_t image = d.in_channels * d.in_height * d.in_width;
  if (d.input_layout == ImageLayout::kNchw) {
    return {image, d.in_height * d.in_width, d.in_width, 1};
  }
  return {image, 1, d.in_width * d.in_channels, d.in_channels};
}

void encode(const ConvolutionDescriptor& d, const ConvolutionOperands& operands) {
  require(d.output_layout == ImageLayout::kNchw, "a convolution into another layout than NCHW");
  Arguments arguments;
  arguments.add(operands.out).add(operands.input).add(operands.weight);
  arguments.add(d.has_bias ? operands.bias : operands.weight);  // is not read
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(Window{narrow(d.kernel_height), narrow(d.kernel_width), narrow(d.stride[0]),
                       narrow(d.stride[1]), narrow(d.padding[0]), narrow(d.padding[1]),
                       narrow(d.dilation[0]), narrow(d.dilation[1]), narrow(d.groups),
                       d.transposed ? 1 : 0, d.has_bias ? 1 : 0});
  arguments.add(places_of(d));
  dispatch("products", "convolve_" + metal_name(d.dtype), arguments,
           threads_for(d.batch * d.out_channels * d.out_height * d.out_width));
}

}  // namespace

bool is_own(const MatmulDescriptor& d) {
  return d.k >= kWrongInner && d.m >= kWrongOuter && d.n >= kWrongOuter;
}

// A depthwise convolution is slow as a grouped one (github.com/pytorch/pytorch, issue 94661), and
// keeps the encoder open as a kernel.
bool is_own(const ConvolutionDescriptor& d) {
  const bool wrong = std::max(d.kernel_height, d.kernel_width) >= kWrongKernel ||
                     std::max({d.out_channels, d.out_height, d.out_width}) > kWrongExtent;
  return wrong || (d.groups > 1 && d.groups == d.in_channels);
}

void product(const MatmulDescriptor& descriptor, const MatmulOperands& operands) {
  if (is_own(descriptor)) return encode(descriptor, operands);
  State::current().stream().matmul(descriptor, operands);
}

void product(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands) {
  if (is_own(descriptor)) return encode(descriptor, operands);
  State::current().stream().convolution(descriptor, operands);
}

}  // namespace menagerie::metal
