// The computations of kernels/kernels.h that oneDNN does; dispatch.cpp decides when.
#pragma once

#include <functional>
#include <string>

#include "kernels/kernels.h"

namespace menagerie::onednn {

// Call compute(epilogue). If the activation met a NaN, which oneDNN turns into a number, call it
// again without one and apply that separately; do so at once where it may not be repeated.
void finish(const kernels::Epilogue& epilogue, const Tensor& output, bool may_repeat,
            const std::function<void(const kernels::Epilogue&)>& compute);

// Compute a convolution, channels-last, which oneDNN's direct kernels take at full speed; weights
// go to the layout it prefers, once for a constant.
void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
                 const Tensor& output);
// Compute the same in integers; return false, with nothing done, if oneDNN has no kernel for it.
// The processor must multiply integers (kernels/processor.h).
bool rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const kernels::Epilogue& epilogue, const Tensor& output);

// Return whether `winograd` computes this convolution, likely faster than the direct kernel.
bool winograd_pays(const Tensor& input, const Tensor& weight,
                   const ConvolutionParameters& parameters, const Tensor& output);

// Compute output = activation(input[N, C, H, W] * weight[O, C, 3, 3] + bias[O]), input and output
// channels-last, by the algorithm F(4 x 4, 3 x 3) of Lavin and Gray (arXiv:1509.09308): 36
// multiplications for 16 results instead of 144.
void winograd(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

// Return the same elements with definite strides along axes of one element, which could otherwise
// be read as a leading dimension that is too small.
Tensor with_definite_strides(Tensor tensor);
bool is_row_major(const Tensor& tensor);
// Return dense rows or dense columns, which oneDNN's fast kernels take, by a copy if needed.
Tensor gathered(const Tensor& tensor);

// Compute products of gathered operands into a row-major output: over strided operands, and of
// matrices with a packed constant right-hand side, which is oneDNN's fastest path.
void matmul(const kernels::Product& product, const Tensor& output);
void inner_product(const kernels::Product& product, const Tensor& output);
// Compute the product in integers, which the processor must multiply.
void rounded_product(const kernels::Product& product, const IntegerWeight& integers,
                     const Tensor& output);
void small_product(const kernels::SmallProduct& product);

// Return oneDNN's name and version.
std::string library_version();

}  // namespace menagerie::onednn
