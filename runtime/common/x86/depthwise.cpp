#include "common/x86/depthwise.h"

#include "common/platform/parallel.h"
#include "common/x86/sliding.h"

namespace menagerie::x86 {
namespace {

constexpr int64_t kTask = 1 << 18;  // multiplications that are worth another thread

bool has_dense_channels(const Tensor& images) {
  return images.dtype == Dtype::kFloat32 && images.stride[1] == 1;
}

}  // namespace

bool is_depthwise(int64_t channels, const Tensor& weight, const kernels::ConvolutionParameters& p,
                  const Tensor& output) {
  return p.spatial == 2 && !p.transposed && p.groups == channels && p.groups > 1 &&
         weight.size[2] <= kMostWindowRows && output.size[1] == p.groups &&
         weight.storage->is_constant() && has_dense_channels(output);
}

bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const kernels::ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output) {
  Finish finish;
  if (!has_dense_channels(input) || !is_depthwise(input.size[1], weight, parameters, output) ||
      !finish_of(epilogue, finish) || !is_exponential(finish)) {
    return false;
  }
  note_own_kernel();
  const auto windows = packed_windows(weight);
  const auto across = stretches(parameters, input.size[3], weight.size[3], output.size[3]);
  const int64_t rows = output.size[0] * output.size[2];
  const int64_t products = output.elements() * weight.size[2] * weight.size[3];
  const int64_t chunk = kTask * rows / products + 1;
  threads::share_out(static_cast<size_t>(rows), static_cast<size_t>(chunk), [&](auto& left) {
    for (size_t next = 0, end = 0; left.take(next, end);) {
      for (; next < end; ++next) {
        const int64_t image = static_cast<int64_t>(next) / output.size[2];
        const Sliding sliding{input.data<float>() + image * input.stride[0],
                              input.size[2],
                              input.stride[2],
                              input.stride[3],
                              input.size[2],
                              windows->values.data(),
                              input.size[1],
                              weight.size[2],
                              weight.size[3],
                              bias == nullptr ? nullptr : bias->data<float>(),
                              output.data<float>() + image * output.stride[0],
                              output.stride[2],
                              output.stride[3],
                              across,
                              input.size[1],
                              parameters,
                              finish};
        slide_row(sliding, static_cast<int64_t>(next) % output.size[2]);
      }
    }
  });
  return true;
}

}  // namespace menagerie::x86
