// Products of rows with packed weights by panel kernels. Rows are packed, too, where a tile has
// more of them than a set of the first-level cache has lines.
#pragma once

#include "common/kernels.h"
#include "common/x86/kernels.h"
#include "common/x86/packed_panels.h"

namespace menagerie::x86 {

// output[rows, columns] = finish(input[rows, depth] * weights + bias). Rows of the input may
// overlap, as windows of a sequence do.
struct RowsProduct {
  const float* input;
  int64_t input_row;
  const float* bias;  // null for none
  float* output;
  int64_t output_row;
  int64_t rows, depth;
};

// Whether the rows are enough to be divided among all threads.
bool takes_many_rows(int64_t rows);

void multiply_all_rows(const RowsProduct& product, const PackedPanels& weights,
                       const Finish& finish);

// Computes a product with a constant right-hand side where these kernels are the faster ones;
// false, with nothing done, where the kernel library is to. All operands are matrices with dense
// rows.
bool dense_product(const kernels::Product& product, const Tensor& output);

}  // namespace menagerie::x86
