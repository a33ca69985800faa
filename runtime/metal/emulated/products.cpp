#include <array>

#include "common/copy.h"
#include "kernels/kernels.h"
#include "metal/emulated/memory.h"
#include "metal/emulated/stream.h"
#include "metal/state.h"

namespace menagerie::metal::emulated {
namespace {

// What is on the device as the host reads it, which keeps the buffer.
Tensor on_host(const Region& region, Dtype dtype, std::span<const int64_t> sizes,
               std::span<const int64_t> strides, bool write = false) {
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, strides));
  const auto memory = Storage::borrow(checked_address(region, bytes, write, "a product"), bytes);
  const auto kept = [memory, buffer = region.buffer](Storage*) {};
  return make_view({memory.get(), kept}, dtype, sizes, strides, 0);
}

Tensor on_host(const Tensor& tensor, bool write = false) {
  return on_host(region_of(tensor), tensor.dtype, tensor.sizes(), tensor.strides(), write);
}

Tensor dense_on_host(const Region& region, Dtype dtype, std::span<const int64_t> sizes,
                     bool write = false) {
  return on_host(region, dtype, sizes, {contiguous_strides(sizes).data(), sizes.size()}, write);
}

Tensor single(const Tensor& tensor) {
  return tensor.dtype == Dtype::kFloat32 ? tensor : widened(tensor);
}

}  // namespace

std::function<void()> product(const Tensor& out, const Tensor& a, const Tensor& b,
                              const Tensor* addend, float alpha, float beta) {
  const auto matrices = [&](const Tensor& of) {
    return broadcast(on_host(of), std::array{out.size[0], of.size[1], of.size[2]});
  };
  const Tensor more = addend == nullptr ? Tensor() : on_host(*addend);
  if (addend == nullptr) beta = 0;
  return [to = on_host(out, true), left = matrices(a), right = matrices(b), more, alpha, beta] {
    const Tensor sums = single(to), l = single(left), r = single(right);
    if (beta != 0) assign(more, sums);
    kernels::matrix_product({.a = l, .b = r, .alpha = alpha, .beta = beta}, sums);
    if (to.dtype != sums.dtype) assign(sums, to);
  };
}

std::function<void()> convolution(const ConvolutionDescriptor& d,
                                  const ConvolutionOperands& operands) {
  const std::array in{d.batch, d.in_channels, d.in_height, d.in_width};
  const std::array result{d.batch, d.out_channels, d.out_height, d.out_width};
  const int64_t outer = d.transposed ? d.in_channels : d.out_channels;
  const int64_t inner = (d.transposed ? d.out_channels : d.in_channels) / d.groups;
  const std::array taps{outer, inner, d.kernel_height, d.kernel_width};
  const Extents strides =
      d.input_layout == ImageLayout::kNchw ? contiguous_strides(in) : channels_last_strides(in);
  const Tensor images = on_host(operands.input, d.dtype, in, {strides.data(), in.size()});
  const Tensor weight = dense_on_host(operands.weight, d.dtype, taps);
  const Tensor to = dense_on_host(operands.out, d.dtype, result, true);
  const Tensor bias =
      d.has_bias ? dense_on_host(operands.bias, d.dtype, std::array{d.out_channels}) : Tensor();
  const ConvolutionParameters p{.stride = {d.stride[0], d.stride[1], 1},
                                .padding = {d.padding[0], d.padding[1], 0},
                                .dilation = {d.dilation[0], d.dilation[1], 1},
                                .output_padding = {d.output_padding[0], d.output_padding[1], 0},
                                .transposed = d.transposed,
                                .groups = d.groups};
  return [images, weight, bias, to, p, has_bias = d.has_bias] {
    const Tensor sums = single(to), offsets = has_bias ? single(bias) : bias;
    kernels::convolution(single(images), single(weight), has_bias ? &offsets : nullptr, p, {},
                         sums);
    if (to.dtype != sums.dtype) assign(sums, to);
  };
}

}  // namespace menagerie::metal::emulated
