#include "common/x86/sequence.h"

#include "common/x86/dense_product.h"

namespace menagerie::x86 {
namespace {

// Places that lie one after another, each with dense channels.
bool is_dense_along(const Tensor& tensor, int32_t axis) {
  const int64_t channels = tensor.size[1];
  return tensor.dtype == Dtype::kFloat32 && (channels == 1 || tensor.stride[1] == 1) &&
         tensor.stride[axis] == channels;
}

// Whether the windows move along the last axis alone and none reaches past an end: neighbouring
// places are one row of numbers then.
bool has_whole_windows(const Tensor& input, const Tensor& weight,
                       const kernels::ConvolutionParameters& p) {
  bool so = !p.transposed && p.groups == 1 && weight.storage->is_constant();
  for (size_t i = 0; i < p.spatial; ++i) {
    const bool is_last = i + 1 == p.spatial;
    so = so && p.padding[i] == 0 && p.dilation[i] == 1;
    so = so && (is_last ? weight.size[i + 2] > 1 : input.size[i + 2] == 1);
  }
  return so;
}

}  // namespace

bool sequence(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const kernels::ConvolutionParameters& p, const kernels::Epilogue& epilogue,
              const Tensor& output) {
  Finish finish;
  const auto last = static_cast<int32_t>(p.spatial + 1);
  if (!has_whole_windows(input, weight, p) || !finish_of(epilogue, finish)) return false;
  if (!is_dense_along(input, last) || !is_dense_along(output, last)) return false;
  if (!takes_many_rows(output.size[last])) return false;
  note_own_kernel();
  const int64_t channels = input.size[1], taps = weight.size[last];
  const auto panels = packed_panels(weight, {weight.size[0], taps, channels, weight.stride[0],
                                             weight.stride[last], weight.stride[1]});
  for (int64_t i = 0; i < input.size[0]; ++i) {
    multiply_all_rows(
        {input.data<float>() + i * input.stride[0], p.stride[p.spatial - 1] * channels,
         bias == nullptr ? nullptr : bias->data<float>(),
         output.data<float>() + i * output.stride[0], output.size[1], output.size[last],
         taps * channels},
        *panels, finish);
  }
  return true;
}

}  // namespace menagerie::x86
