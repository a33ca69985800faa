// Convolutions with what follows them.
#pragma once

#include "common/kernels.h"
#include "metal/finish.h"

namespace menagerie::metal {

// output = finish(input * weight + bias), none of them empty; the bias may be null.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const kernels::ConvolutionParameters& parameters, const Tensor& output,
              const Finishing& finishing);

// An image of one axis, [N, C, W], as [N, C, 1, W].
Tensor as_image(const Tensor& tensor);

}  // namespace menagerie::metal
