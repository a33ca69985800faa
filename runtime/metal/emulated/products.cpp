#include <algorithm>
#include <vector>

#include "common/dtype.h"
#include "common/error.h"
#include "common/tensor.h"
#include "kernels/kernels.h"
#include "metal/emulated/memory.h"
#include "metal/emulated/stream.h"

namespace menagerie::metal::emulated {
namespace {

using Sizes = std::vector<int64_t>;

int64_t count(const Sizes& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    require(size >= 0 && !__builtin_mul_overflow(elements, size, &elements),
            "an operand of a product has impossible sizes");
  }
  return elements;
}

std::byte* address(const Region& region, Dtype dtype, const Sizes& sizes, bool write,
                   const char* what) {
  size_t bytes = 0;
  require(!__builtin_mul_overflow(static_cast<size_t>(count(sizes)),
                                  static_cast<size_t>(element_size(dtype)), &bytes),
          what, " is too large");
  return checked_address(region, bytes, write, what);
}

void require_floating(Dtype dtype) {
  require(dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16,
          "a product of ", info(dtype).name, " is not of floats");
}

// An operand as float32, in place or widened, that the kernel library can take.
class Operand {
 public:
  Operand(const Region& region, Dtype dtype, const Sizes& sizes, const Sizes& strides)
      : memory_(address(region, dtype, sizes, false, "an operand of a product")),
        dtype_(dtype),
        elements_(count(sizes)) {
    float* data = reinterpret_cast<float*>(memory_);
    if (dtype != Dtype::kFloat32) {
      wide_.resize(elements_);
      data = wide_.data();
    }
    tensor_ = make_view(Storage::borrow(data, elements_ * sizeof(float)), Dtype::kFloat32, sizes,
                        strides, 0);
  }

  const Operand& widen() {
    convert([](auto& narrow, float& wide) { wide = static_cast<float>(narrow); });
    return *this;
  }
  void narrow() {
    convert([](auto& narrow, float& wide) {
      narrow = static_cast<std::remove_reference_t<decltype(narrow)>>(wide);
    });
  }
  const Tensor& tensor() const { return tensor_; }
  float* data() const { return tensor_.data<float>(); }

 private:
  template <class Function>
  void convert(Function&& function) {
    if (dtype_ == Dtype::kFloat32) return;
    with_type(dtype_, [&](auto type) {
      auto* narrow = reinterpret_cast<decltype(type)*>(memory_);
      for (int64_t i = 0; i < elements_; ++i) function(narrow[i], wide_[i]);
    });
  }

  std::byte* memory_;
  Dtype dtype_;
  int64_t elements_;
  std::vector<float> wide_;
  Tensor tensor_;
};

Operand matrix(const Region& region, Dtype dtype, int64_t batch, int64_t rows, int64_t columns,
               bool transposed) {
  const Sizes strides =
      transposed ? Sizes{rows * columns, 1, rows} : Sizes{rows * columns, columns, 1};
  return {region, dtype, {batch, rows, columns}, strides};
}

// The same matrix for each of a batch.
Tensor repeated(Tensor tensor, int64_t batch) {
  if (tensor.size[0] == batch) return tensor;
  tensor.size[0] = batch;
  tensor.stride[0] = 0;
  return tensor;
}

// Sets the output to the addend, broadcast.
void spread(const Tensor& addend, const Tensor& output) {
  Tensor source = addend;
  source.size = output.size;
  for (int axis = 0; axis < 3; ++axis) {
    if (addend.size[axis] == 1) source.stride[axis] = 0;
  }
  const float* from = source.data<float>();
  float* to = output.data<float>();
  if (from == to && addend.size == output.size) return;
  for_each_index(output.sizes(), [&](std::span<const int64_t> at) {
    int64_t offset = 0;
    for (int axis = 0; axis < 3; ++axis) offset += at[axis] * source.stride[axis];
    *to++ = from[offset];
  });
}

Sizes strides_of(ImageLayout layout, const Sizes& sizes) {
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  if (layout == ImageLayout::kNchw) return {c * h * w, h * w, w, 1};
  return {h * w * c, 1, w * c, c};
}

int64_t reach(int64_t input, int64_t window, int64_t stride, int64_t padding, int64_t dilation,
              int64_t output_padding, bool transposed) {
  const int64_t span = dilation * (window - 1) + 1;
  if (transposed) return (input - 1) * stride - 2 * padding + span + output_padding;
  return (input + 2 * padding - span) / stride + 1;
}

Sizes input_sizes(const ConvolutionDescriptor& d) {
  return {d.batch, d.in_channels, d.in_height, d.in_width};
}
Sizes output_sizes(const ConvolutionDescriptor& d) {
  return {d.batch, d.out_channels, d.out_height, d.out_width};
}
Sizes weight_sizes(const ConvolutionDescriptor& d) {
  const int64_t outer = d.transposed ? d.in_channels : d.out_channels;
  const int64_t inner = (d.transposed ? d.out_channels : d.in_channels) / d.groups;
  return {outer, inner, d.kernel_height, d.kernel_width};
}

}  // namespace

void check(const MatmulDescriptor& d, const MatmulOperands& operands) {
  require_floating(d.dtype);
  const char* what = "a matrix product";
  require((d.a_batch == 1 || d.a_batch == d.batch) && (d.b_batch == 1 || d.b_batch == d.batch),
          what, ": batches of ", d.a_batch, " and ", d.b_batch, " matrices for ", d.batch);
  require(std::max(d.a_batch, d.b_batch) == d.batch, what, ": ", d.batch,
          " results of one pair of matrices");
  address(operands.a, d.dtype, {d.a_batch, d.m, d.k}, false, what);
  address(operands.b, d.dtype, {d.b_batch, d.k, d.n}, false, what);
  address(operands.out, d.dtype, {d.batch, d.m, d.n}, true, what);
  if (!d.addend.has_value()) return;
  const Sizes target{d.batch, d.m, d.n}, given(d.addend->begin(), d.addend->end());
  for (int axis = 0; axis < 3; ++axis) {
    require(given[axis] == target[axis] || given[axis] == 1, what, ": an addend with ", given[axis],
            " elements along axis ", axis, ", where the product has ", target[axis]);
  }
  address(operands.addend, d.dtype, given, false, what);
}

void run(const MatmulDescriptor& d, const MatmulOperands& operands) {
  if (d.batch == 0 || d.m == 0 || d.n == 0) return;
  Operand out = matrix(operands.out, d.dtype, d.batch, d.m, d.n, false);
  const bool adds = d.addend.has_value() && d.beta != 0;
  if (adds) {
    const auto& [b, m, n] = *d.addend;
    Operand addend = matrix(operands.addend, d.dtype, b, m, n, false);
    spread(addend.widen().tensor(), out.tensor());
  }
  if (d.k == 0) {
    for (int64_t i = 0; i < d.batch * d.m * d.n; ++i)
      out.data()[i] = adds ? d.beta * out.data()[i] : 0;
    return out.narrow();
  }
  Operand a = matrix(operands.a, d.dtype, d.a_batch, d.m, d.k, d.a_transposed);
  Operand b = matrix(operands.b, d.dtype, d.b_batch, d.k, d.n, d.b_transposed);
  const Tensor left = repeated(a.widen().tensor(), d.batch);
  const Tensor right = repeated(b.widen().tensor(), d.batch);
  kernels::matrix_product({.a = left, .b = right, .alpha = d.alpha, .beta = adds ? d.beta : 0},
                          out.tensor());
  out.narrow();
}

void check(const ConvolutionDescriptor& d, const ConvolutionOperands& operands) {
  require_floating(d.dtype);
  const char* what = "a convolution";
  require(d.groups > 0 && d.in_channels % d.groups == 0 && d.out_channels % d.groups == 0, what,
          ": ", d.in_channels, " to ", d.out_channels, " channels in ", d.groups, " groups");
  const int64_t height = reach(d.in_height, d.kernel_height, d.stride[0], d.padding[0],
                               d.dilation[0], d.output_padding[0], d.transposed);
  const int64_t width = reach(d.in_width, d.kernel_width, d.stride[1], d.padding[1], d.dilation[1],
                              d.output_padding[1], d.transposed);
  require(height == d.out_height && width == d.out_width, what, ": the output has ", d.out_height,
          " x ", d.out_width, " places where ", height, " x ", width, " are computed");
  address(operands.input, d.dtype, input_sizes(d), false, what);
  address(operands.weight, d.dtype, weight_sizes(d), false, what);
  address(operands.out, d.dtype, output_sizes(d), true, what);
  if (d.has_bias) address(operands.bias, d.dtype, {d.out_channels}, false, what);
}

void run(const ConvolutionDescriptor& d, const ConvolutionOperands& operands) {
  const Sizes in = input_sizes(d), weights = weight_sizes(d), result = output_sizes(d);
  if (count(result) == 0) return;
  Operand input(operands.input, d.dtype, in, strides_of(d.input_layout, in));
  Operand weight(operands.weight, d.dtype, weights, strides_of(ImageLayout::kNchw, weights));
  Operand out(operands.out, d.dtype, result, strides_of(d.output_layout, result));
  std::vector<Operand> bias;
  if (d.has_bias) bias.emplace_back(operands.bias, d.dtype, Sizes{d.out_channels}, Sizes{1});
  for (Operand& operand : bias) operand.widen();
  ConvolutionParameters parameters;
  parameters.stride = {d.stride[0], d.stride[1], 1};
  parameters.padding = {d.padding[0], d.padding[1], 0};
  parameters.dilation = {d.dilation[0], d.dilation[1], 1};
  parameters.output_padding = {d.output_padding[0], d.output_padding[1], 0};
  parameters.transposed = d.transposed;
  parameters.groups = d.groups;
  kernels::convolution(input.widen().tensor(), weight.widen().tensor(),
                       bias.empty() ? nullptr : &bias.front().tensor(), parameters, {},
                       out.tensor());
  out.narrow();
}

}  // namespace menagerie::metal::emulated
