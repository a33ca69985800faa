// Convolutions with what follows them.
#pragma once

#include "common/windows.h"
#include "metal/epilogue.h"

namespace menagerie::metal {

// output = finish(factor input * weight + bias), none of them empty. The factor [N or 1, C, 1, 1],
// which only images have, and the bias may be null.
void convolve(const Tensor& input, const Tensor* factor, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Tensor& output,
              const Finishing& finishing);

// An image of one axis, [N, C, W], as [N, C, 1, W].
Tensor as_image(const Tensor& tensor);

}  // namespace menagerie::metal
