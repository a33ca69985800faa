// Convolutions of sequences as products of their windows, by kernels of our own.
#pragma once

#include "common/kernels.h"

namespace menagerie::x86 {

// Computes such a convolution where our kernels are the faster ones; false, with nothing done,
// where the kernel library is to. Operands are those of kernels::convolution.
bool sequence(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const kernels::ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

}  // namespace menagerie::x86
