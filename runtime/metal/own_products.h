// Products by kernels of our own, for what MPSGraph computes wrong and for what it is slow at.
#pragma once

#include "metal/device.h"

namespace menagerie::metal {

// Whether MPSGraph is not to be asked.
bool is_own(const MatmulDescriptor& descriptor);
bool is_own(const ConvolutionDescriptor& descriptor);
// Of an attention of so many operations, whether its products are not to be computed apart.
bool is_own_attention(double operations);

// Encodes the product on the current context's stream, by whichever of the two.
void product(const MatmulDescriptor& descriptor, const MatmulOperands& operands);
void product(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands);

}  // namespace menagerie::metal
