// Products by kernels of our own, for what MPSGraph computes wrong and for what it is slow at.
#pragma once

#include "common/tensor.h"
#include "metal/device.h"
#include "metal/finish.h"
#include "metal/tiles.h"

namespace menagerie::metal {

// What a product adds to its sums, and what follows them.
struct ProductTerms {
  const Tensor* addend = nullptr;  // [1 or B, 1 or M, 1 or N], null: none
  float alpha = 1, beta = 0;
  const Finishing& finishing;
};
// The addend, or what stands in its place without one.
const Tensor& addend_or(const ProductTerms& terms, const Tensor& unread);
MatrixStrides strides_of_addend(const ProductTerms& terms);  // nought without one

// Two a term.
double operations_of(int64_t batch, int64_t m, int64_t n, int64_t k);
// Whether work is so large that the device's own graphs may be faster.
bool is_worth_a_graph(Work work, double operations);

// Encodes out[B, M, N] = finish(alpha * a[1 or B, M, K] * b[1 or B, K, N] + beta * addend) on the
// current context's stream, by whichever of the two, and what follows it: within the kernel if it
// is ours, else in one more. `out` is contiguous and not empty, K not nought; the others lie as
// they will.
void product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductTerms& terms);

// What each channel of an image is multiplied by before it is convolved; strides in elements.
struct Factors {
  Region values;  // without a buffer: nothing
  int64_t image = 0, channel = 0;
};
// Whether the kernel of such a convolution multiplies as it reads.
bool takes_factors(const ConvolutionDescriptor& descriptor);
// The same of a convolution, with factors only where it takes them.
void product(const ConvolutionDescriptor& descriptor, const ConvolutionOperands& operands,
             const Factors& factors, const Finishing& finishing);

}  // namespace menagerie::metal
