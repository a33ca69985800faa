// What oneDNN computes, as kernels/kernels.h specifies it; dispatch.cpp decides when.
#pragma once

#include <functional>
#include <string>

#include "kernels/kernels.h"

namespace menagerie::onednn {

// Calls compute(epilogue). If the activation has met a NaN, of which oneDNN's makes a number, calls
// it again without one, which is applied apart; at once where it may not be repeated.
void finish(const kernels::Epilogue& epilogue, const Tensor& output, bool may_repeat,
            const std::function<void(const kernels::Epilogue&)>& compute);

// Convolution. Activations are computed channels-last, which its direct kernels take at full speed;
// weights go to the layout it likes best, once for a constant.
void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
                 const Tensor& output);
// The same of integers; false, with nothing done, if oneDNN has no kernel for it. The processor
// must multiply integers (kernels/processor.h).
bool rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const kernels::Epilogue& epilogue, const Tensor& output);

// Whether `winograd` computes this convolution, and is likely to be faster than the direct kernel.
bool winograd_pays(const Tensor& input, const Tensor& weight,
                   const ConvolutionParameters& parameters, const Tensor& output);

// output = activation(input[N, C, H, W] * weight[O, C, 3, 3] + bias[O]), input and output
// channels-last, by the algorithm F(4 x 4, 3 x 3) of Lavin and Gray (arXiv:1509.09308): 36
// multiplications for 16 results, where there are 144 products.
void winograd(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& parameters, const kernels::Epilogue& epilogue,
              const Tensor& output);

// The same elements with definite strides along axes of one element, which else could read as a
// leading dimension that is too small.
Tensor with_definite_strides(Tensor tensor);
bool is_row_major(const Tensor& tensor);
// oneDNN's fast kernels take dense rows or dense columns; anything else is gathered.
Tensor gathered(const Tensor& tensor);

// Products of gathered operands into a row-major output: over strided operands, and of matrices
// with a constant right-hand side that is packed, which is oneDNN's fastest path.
void matmul(const kernels::Product& product, const Tensor& output);
void inner_product(const kernels::Product& product, const Tensor& output);
// Of integers; the processor must multiply them.
void rounded_product(const kernels::Product& product, const IntegerWeight& integers,
                     const Tensor& output);
void small_product(const kernels::SmallProduct& product);

// oneDNN's name and version.
std::string library_version();

}  // namespace menagerie::onednn
