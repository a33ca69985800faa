// Our own kernels for x86-64. Those that answer compute a call where they were measured to be the
// faster ones; false, with nothing done, where oneDNN is to.
#pragma once

#include "kernels/kernels.h"

namespace menagerie::simd {

// Convolutions of 1 x 1, as products of pixels with packed weights. Operands are those of
// kernels::convolution.
bool pointwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output);

// Convolutions of sequences, as products of their windows.
bool sequence(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

// Depthwise convolutions of images.
bool depthwise(const Tensor& input, const Tensor& weight, const Tensor* bias,
               const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
               const Tensor& output);

// A depthwise convolution of a deeper image that another one makes: a few rows of that image at a
// time, of a few channels, stay in the cache.
bool expanded_depthwise(const kernels::Expanded& call, const Tensor& output);

// A product with a constant right-hand side. All operands are matrices with dense rows.
bool dense_product(const kernels::Product& product, const Tensor& output);

// The same, and convolutions, by weights that are stored in half precision or as integers, which
// stay as they are.
bool narrow_product(const kernels::Product& product, const Tensor& output);
bool narrow_convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                        const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
                        const Tensor& output);

}  // namespace menagerie::simd
