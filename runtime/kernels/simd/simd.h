// Our own kernels for x86-64. Each computes a call where it was measured to be the faster one and
// returns true; else it returns false, with nothing done, and oneDNN computes the call.
#pragma once

#include "kernels/kernels.h"

namespace menagerie::simd {

// Compute a convolution of 1 x 1 as a product of pixels with packed weights. Operands are those of
// kernels::convolution.
bool pointwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output);

// Compute a convolution of sequences as a product of their windows.
bool sequence(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

// Compute a depthwise convolution of images.
bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output);

// Compute a depthwise convolution of a deeper image that another one makes: a few rows of that
// image at a time, of a few channels, stay in the cache.
bool expanded_depthwise(const kernels::Expanded& call, const Tensor& output);

// Compute a product with a constant right-hand side. All operands are matrices with dense rows.
bool dense_product(const kernels::Product& product, const Tensor& output);

// Compute the same, and convolutions, by weights that are stored in half precision or as integers
// and are left as they are.
bool narrow_product(const kernels::Product& product, const Tensor& output);
bool narrow_convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                        const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
                        const Tensor& output);

}  // namespace menagerie::simd
