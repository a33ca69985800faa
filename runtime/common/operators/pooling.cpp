// Shims of pooling over images and volumes; they check arguments.
#include "common/operators.h"
#include "common/shim_support.h"

using namespace menagerie;

namespace {

Tensor averaged(AtenTensorHandle self, int32_t spatial, const PoolingNumbers& given,
                bool count_padding, const int64_t* divisor) {
  const Tensor& input = operand(self);
  require(divisor == nullptr || *divisor != 0, "divisor_override must not be zero");
  const Windows windows = sliding_windows(input, spatial, given);
  return backend::average(input, windows, pooled_geometry(input, windows), count_padding,
                          divisor == nullptr ? std::nullopt : std::optional(*divisor));
}

ValuesAndIndices largest(AtenTensorHandle self, int32_t spatial, const PoolingNumbers& given) {
  const Tensor& input = operand(self);
  const Windows windows = sliding_windows(input, spatial, given);
  return backend::largest(input, windows, pooled_geometry(input, windows));
}

}  // namespace

MENAGERIE_OPERATOR(avg_pool2d)(AtenTensorHandle self, const int64_t* kernel_size,
                               int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_,
                               const int64_t* padding, int64_t padding_len_, int32_t ceil_mode,
                               int32_t count_include_pad, int64_t* divisor_override,
                               AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const PoolingNumbers given{numbers(kernel_size, kernel_size_len_),
                               numbers(stride, stride_len_),
                               numbers(padding, padding_len_),
                               {},
                               ceil_mode != 0};
    *ret0 = to_handle(averaged(self, 2, given, count_include_pad != 0, divisor_override));
  });
}

MENAGERIE_OPERATOR(avg_pool3d)(AtenTensorHandle self, const int64_t* kernel_size,
                               int64_t kernel_size_len_, const int64_t* stride, int64_t stride_len_,
                               const int64_t* padding, int64_t padding_len_, int32_t ceil_mode,
                               int32_t count_include_pad, int64_t* divisor_override,
                               AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const PoolingNumbers given{numbers(kernel_size, kernel_size_len_),
                               numbers(stride, stride_len_),
                               numbers(padding, padding_len_),
                               {},
                               ceil_mode != 0};
    *ret0 = to_handle(averaged(self, 3, given, count_include_pad != 0, divisor_override));
  });
}

MENAGERIE_OPERATOR(max_pool2d_with_indices)(AtenTensorHandle self, const int64_t* kernel_size,
                                            int64_t kernel_size_len_, const int64_t* stride,
                                            int64_t stride_len_, const int64_t* padding,
                                            int64_t padding_len_, const int64_t* dilation,
                                            int64_t dilation_len_, int32_t ceil_mode,
                                            AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const PoolingNumbers given{numbers(kernel_size, kernel_size_len_), numbers(stride, stride_len_),
                               numbers(padding, padding_len_), numbers(dilation, dilation_len_),
                               ceil_mode != 0};
    give(largest(self, 2, given), ret0, ret1);
  });
}

MENAGERIE_OPERATOR(max_pool3d_with_indices)(AtenTensorHandle self, const int64_t* kernel_size,
                                            int64_t kernel_size_len_, const int64_t* stride,
                                            int64_t stride_len_, const int64_t* padding,
                                            int64_t padding_len_, const int64_t* dilation,
                                            int64_t dilation_len_, int32_t ceil_mode,
                                            AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const PoolingNumbers given{numbers(kernel_size, kernel_size_len_), numbers(stride, stride_len_),
                               numbers(padding, padding_len_), numbers(dilation, dilation_len_),
                               ceil_mode != 0};
    give(largest(self, 3, given), ret0, ret1);
  });
}

MENAGERIE_OPERATOR(_adaptive_avg_pool2d)(AtenTensorHandle self, const int64_t* output_size,
                                         int64_t output_size_len_, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    *ret0 = to_handle(backend::average(input, windows, pooled_geometry(input, windows),
                                       /*count_padding=*/false, std::nullopt));
  });
}

MENAGERIE_OPERATOR(adaptive_max_pool2d)(AtenTensorHandle self, const int64_t* output_size,
                                        int64_t output_size_len_, AtenTensorHandle* ret0,
                                        AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    give(backend::largest(input, windows, pooled_geometry(input, windows)), ret0, ret1);
  });
}
