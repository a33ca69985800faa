// Convolutions of 3 x 3 with fewer multiplications than they have products.
#pragma once

#include "kernels/kernels.h"

namespace menagerie::kernels {

// Whether `winograd` computes this convolution, and is likely to be faster than the direct kernel.
bool winograd_pays(const Tensor& input, const Tensor& weight,
                   const ConvolutionParameters& parameters, const Epilogue& epilogue,
                   const Tensor& output);

// output = activation(input[N, C, H, W] * weight[O, C, 3, 3] + bias[O]), input and output
// channels-last, by the algorithm F(4 x 4, 3 x 3) of Lavin and Gray (arXiv:1509.09308): 36
// multiplications for 16 results, where there are 144 products.
void winograd(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const Epilogue& epilogue,
              const Tensor& output);

}  // namespace menagerie::kernels
