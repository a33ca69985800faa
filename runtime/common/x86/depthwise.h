// Depthwise convolutions of images, by kernels of our own.
#pragma once

#include "common/kernels.h"

namespace menagerie::x86 {

// Computes such a convolution where our kernels are the faster ones; false, with nothing done,
// where the kernel library is to. Operands are those of kernels::convolution.
bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const kernels::ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output);

// Whether a convolution of images with so many channels, each with a window of its own, is one that
// `sliding.h` computes: the weight is a constant, channels of the results are dense.
bool is_depthwise(int64_t channels, const Tensor& weight, const kernels::ConvolutionParameters& p,
                  const Tensor& output);

}  // namespace menagerie::x86
