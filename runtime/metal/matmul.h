// Matrix products with what follows them.
#pragma once

#include "metal/finish.h"

namespace menagerie::metal {

// out = finish(alpha * a * b + beta * self) over floating tensors [.., M, N] of one dtype; out has
// elements. `self` broadcasts to out; null: nought.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, float beta,
              float alpha, const Finishing& finishing);

}  // namespace menagerie::metal
