// Convolutions with what follows them, for any layout and dtype.
#pragma once

#include "kernels/kernels.h"

namespace menagerie {

// output = epilogue(input * weight + bias), of operands that fit.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

}  // namespace menagerie
