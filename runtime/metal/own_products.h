// Products by kernels of our own, for what MPSGraph computes wrong and for what it is slow at.
#pragma once

#include "metal/device.h"
#include "metal/finish.h"

namespace menagerie::metal {

// Whether MPSGraph is not to be asked.
bool is_own(const MatmulDescriptor& descriptor);
bool is_own(const ConvolutionDescriptor& descriptor);
// Of an attention of so many operations, whether its products are not to be computed apart.
bool is_own_attention(double operations);
// Whether a product is so large that the device's own kernels may be faster.
bool is_worth_a_graph(int64_t batch, int64_t m, int64_t n, int64_t k);

// Encodes the product on the current context's stream, by whichever of the two, and what follows
// it: within the kernel if it is ours, else in one more.
void product(const MatmulDescriptor& descriptor, const MatmulOperands& operands,
             const Finishing& finishing);
void product(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands,
             const Finishing& finishing);

}  // namespace menagerie::metal
