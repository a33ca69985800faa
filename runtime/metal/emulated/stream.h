// The emulated command queue, and the products and convolutions that it runs on the host's kernels.
#pragma once

#include <memory>

#include "metal/device.h"

namespace menagerie::metal::emulated {

std::unique_ptr<Stream> make_host_stream();

// Matrix products and convolutions are computed in float32; float16 and bfloat16 operands are
// widened first, and the result is rounded once.
// Fail if an operand does not lie within its buffer.
std::function<void()> product(const Tensor& out, const Tensor& a, const Tensor& b,
                              const Tensor* addend, float alpha, float beta);
std::function<void()> convolution(const ConvolutionDescriptor& descriptor,
                                  const ConvolutionOperands& operands);

}  // namespace menagerie::metal::emulated
