#include "metal/own_products.h"

#include <algorithm>
#include <cstdlib>
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

// As the kernels have them.
struct Extents {
  int64_t m, n, k;
  float alpha, beta;
};
struct Strides {
  int64_t batch, row, column;
};
struct Sums {
  int64_t n, k;
  float alpha, beta;
};
struct Steps {
  int64_t x_step, x_batch, b_down, b_across, b_batch, addend_step, addend_batch;
};
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

constexpr uint64_t kThreads = 128;  // of a group that computes a tile
constexpr uint64_t kSimdWidth = 32;
constexpr uint64_t kSlices = 8;
// A large tile reads its operands less often, a small one leaves less of itself empty.
constexpr int64_t kLarge = 64, kSmall = 32;

// MENAGERIE_METAL_GRAPH_FROM sets it, in GFLOP: `make mac-day` tries several.
double border(double of_device) {
  static const char* given = std::getenv("MENAGERIE_METAL_GRAPH_FROM");
  return given == nullptr ? of_device : std::atof(given) * 1e9;
}

bool is_worth_a_graph(int64_t batch, int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
             static_cast<double>(k) >=
         border(MetalDevice::instance().graph_from());
}

Strides strides_of(int64_t batches, int64_t rows, int64_t columns, bool transposed) {
  const int64_t batch = batches == 1 ? 0 : rows * columns;
  return transposed ? Strides{batch, 1, rows} : Strides{batch, columns, 1};
}

Strides strides_of(const std::array<int64_t, 3>& size) {
  return {size[0] == 1 ? 0 : size[1] * size[2], size[1] == 1 ? 0 : size[2], size[2] == 1 ? 0 : 1};
}

uint64_t quotient(int64_t size, uint64_t by) { return (static_cast<uint64_t>(size) + by - 1) / by; }

int64_t tile_of(const Extents& p) { return p.m > kSmall && p.n > kSmall ? kLarge : kSmall; }

void dispatch_tiles(const std::string& function, const Arguments& arguments, const Extents& p,
                    int64_t batch, Dtype dtype) {
  const int64_t tile = tile_of(p);
  dispatch("matrix_product", function + "_" + metal_name(dtype) + "_" + std::to_string(tile),
           arguments,
           Grid{{quotient(p.n, tile) * kThreads, quotient(p.m, tile), static_cast<uint64_t>(batch)},
                {kThreads, 1, 1}});
}

struct Layout {
  Strides a, b, addend;
  float beta;
};

Layout layout_of(const MatmulDescriptor& d) {
  return {strides_of(d.a_batch, d.m, d.k, d.a_transposed),
          strides_of(d.b_batch, d.k, d.n, d.b_transposed),
          strides_of(d.addend.value_or(std::array<int64_t, 3>{1, 1, 1})),
          d.addend.has_value() ? d.beta : 0};
}

// Of two vectors or a matrix and one: the matrix is always `b`, whose columns give the results.
void encode_vectors(const MatmulDescriptor& d, const MatmulOperands& operands) {
  const Layout of = layout_of(d);
  const bool row = d.m == 1;
  const Strides& x = row ? of.a : of.b;
  const Strides& b = row ? of.b : of.a;
  const Sums p{row ? d.n : d.m, d.k, d.alpha, of.beta};
  const Steps steps{.x_step = row ? x.column : x.row,
                    .x_batch = x.batch,
                    .b_down = row ? b.row : b.column,
                    .b_across = row ? b.column : b.row,
                    .b_batch = b.batch,
                    .addend_step = row ? of.addend.column : of.addend.row,
                    .addend_batch = of.addend.batch};
  Arguments arguments;
  arguments.add(operands.out).add(row ? operands.a : operands.b).add(row ? operands.b : operands.a);
  arguments.add(d.addend.has_value() ? operands.addend : operands.a);  // is not read
  arguments.add(p).add(steps);
  const auto batch = static_cast<uint64_t>(d.batch);
  const std::string name = metal_name(d.dtype);
  if (steps.b_down == 1) {
    dispatch("vector_product", "dot_rows_" + name, arguments,
             Grid{{static_cast<uint64_t>(p.n) * kSimdWidth, batch, 1}, {kSimdWidth, 1, 1}});
  } else {
    constexpr uint64_t kGroup = kSimdWidth * kSlices;
    dispatch("vector_product", "sum_columns_" + name, arguments,
             Grid{{quotient(p.n, kSimdWidth) * kGroup, batch, 1}, {kGroup, 1, 1}});
  }
}

void encode(const MatmulDescriptor& d, const MatmulOperands& operands) {
  if (d.m == 1 || d.n == 1) return encode_vectors(d, operands);
  const Layout of = layout_of(d);
  const Extents p{d.m, d.n, d.k, d.alpha, of.beta};
  Arguments arguments;
  arguments.add(operands.out).add(operands.a).add(operands.b);
  arguments.add(d.addend.has_value() ? operands.addend : operands.a);  // is not read
  arguments.add(p).add(of.a).add(of.b).add(of.addend);
  dispatch_tiles("multiply", arguments, p, d.batch, d.dtype);
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

Window window_of(const ConvolutionDescriptor& d) {
  return {narrow(d.kernel_height), narrow(d.kernel_width), narrow(d.stride[0]),
          narrow(d.stride[1]),     narrow(d.padding[0]),   narrow(d.padding[1]),
          narrow(d.dilation[0]),   narrow(d.dilation[1])};
}

bool is_plain(const ConvolutionDescriptor& d) { return d.groups == 1 && !d.transposed; }

// Of the product that a plain convolution is: of the taps and the places of one image.
Extents extents_of(const ConvolutionDescriptor& d) {
  return {d.out_channels, d.out_height * d.out_width,
          d.in_channels * d.kernel_height * d.kernel_width, 1, d.has_bias ? 1.0F : 0.0F};
}

bool is_pointwise(const ConvolutionDescriptor& d) {
  const Window w = window_of(d);
  return w.height == 1 && w.width == 1 && w.stride_y == 1 && w.stride_x == 1 && w.padding_y == 0 &&
         w.padding_x == 0;
}

// The kernel's taps times what they see, which of a pointwise convolution is the image as it lies.
void encode_plain(const ConvolutionDescriptor& d, const ConvolutionOperands& operands) {
  const Extents p = extents_of(d);
  const Places places = places_of(d);
  Arguments arguments;
  arguments.add(operands.out).add(operands.weight).add(operands.input);
  arguments.add(d.has_bias ? operands.bias : operands.weight).add(p);  // is not read
  if (is_pointwise(d)) {
    arguments.add(Strides{0, p.k, 1}).add(Strides{places.image, places.channel, places.column});
    arguments.add(Strides{0, 1, 0});
    return dispatch_tiles("multiply", arguments, p, d.batch, d.dtype);
  }
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d)).add(places);
  require(p.n <= std::numeric_limits<int32_t>::max() && p.k <= std::numeric_limits<int32_t>::max(),
          "a convolution of ", p.n, " places by ", p.k, " taps");
  dispatch_tiles("convolve", arguments, p, d.batch, d.dtype);
}

void encode(const ConvolutionDescriptor& d, const ConvolutionOperands& operands) {
  require(d.output_layout == ImageLayout::kNchw, "a convolution into another layout than NCHW");
  if (is_plain(d)) return encode_plain(d, operands);
  Arguments arguments;
  arguments.add(operands.out).add(operands.input).add(operands.weight);
  arguments.add(d.has_bias ? operands.bias : operands.weight);  // is not read
  arguments.add(Image{narrow(d.in_channels), narrow(d.in_height), narrow(d.in_width)});
  arguments.add(Image{narrow(d.out_channels), narrow(d.out_height), narrow(d.out_width)});
  arguments.add(window_of(d));
  arguments.add(Grouping{narrow(d.groups), d.transposed ? 1 : 0, d.has_bias ? 1 : 0});
  arguments.add(places_of(d));
  dispatch("convolution", "convolve_elements_" + metal_name(d.dtype), arguments,
           threads_for(d.batch * d.out_channels * d.out_height * d.out_width));
}

}  // namespace

bool is_own(const MatmulDescriptor& d) {
  const bool wrong = d.k >= kWrongInner && d.m >= kWrongOuter && d.n >= kWrongOuter;
  return wrong || !is_worth_a_graph(d.batch, d.m, d.n, d.k);
}

// A depthwise convolution is slow as a grouped one (github.com/pytorch/pytorch, issue 94661).
bool is_own(const ConvolutionDescriptor& d) {
  const bool wrong = std::max(d.kernel_height, d.kernel_width) >= kWrongKernel ||
                     std::max({d.out_channels, d.out_height, d.out_width}) > kWrongExtent;
  if (wrong || (d.groups > 1 && d.groups == d.in_channels)) return true;
  const Extents p = extents_of(d);
  return is_plain(d) && !is_worth_a_graph(d.batch, p.m, p.n, p.k);
}

bool is_own_attention(double operations) {
  return operations < border(MetalDevice::instance().parts_from());
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
