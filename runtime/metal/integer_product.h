// Products of matrices of whole numbers, which the device's graph kernels do not take.
#pragma once

#include "metal/state.h"

namespace menagerie::metal {

// out = alpha * a * b + beta * self over tensors [.., M, N] of one integer dtype, whose shapes have
// been checked; sums wrap around as the dtype does. `self` broadcasts to out; null: nought.
void integer_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                     double beta, double alpha);

}  // namespace menagerie::metal
