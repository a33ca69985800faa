// Products with weights that the bundle keeps as integers: these are multiplied as they are, by
// kernels of our own, and no floats are made of them.
#pragma once

#include <cstdint>

#include "common/tensor.h"
#include "metal/products.h"

namespace menagerie::metal {

// A weight as packed_product.metal takes it.
struct PackedWeight {
  enum class Form { kEight, kFour, kAbove };  // as there
  Form form = Form::kEight;
  Region integers, scales, offsets;  // offsets: only of kAbove
  int64_t rows = 0, columns = 0;
  int64_t row_bytes = 0;  // of the integers
  int64_t groups = 0;     // of a row: all of it, or each of a power of two of numbers
};

// out[B, M, N] = finish(alpha * x[B, M, K] * weight^T + beta * addend), where out is contiguous and
// not empty; x lies as it will, and may be one for all of the batch.
void multiply_packed(const Tensor& out, const Tensor& x, const PackedWeight& weight,
                     const ProductTerms& terms);

// The same of a or b, whichever stands for such integers; false: neither does, and nothing is done.
bool multiply_if_packed(const Tensor& out, const Tensor& a, const Tensor& b,
                        const ProductTerms& terms);

}  // namespace menagerie::metal
