// Matrix products and convolutions on the host's kernel library. It computes in float32; float16
// and bfloat16 operands are widened first, and the result is rounded once.
#pragma once

#include "metal/device.h"

namespace menagerie::metal::emulated {

// Fail if an operand does not lie within its buffer, or the descriptor cannot be computed.
void check(const MatmulDescriptor& descriptor, const MatmulOperands& operands);
void check(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands);

void run(const MatmulDescriptor& descriptor, const MatmulOperands& operands);
void run(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands);

}  // namespace menagerie::metal::emulated
