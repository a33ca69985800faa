// Matrix products that the kernel library does not compute: for their dtype, or because each of
// their sums is empty.
#pragma once

#include "common/tensor.h"

namespace menagerie {

// out = alpha * a * b + beta * self over tensors [.., M, N] of one dtype, whose shapes have been
// checked. Sums of whole numbers wrap around. `self` broadcasts to out;
// null: nought.
void plain_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                   double beta, double alpha);

}  // namespace menagerie
