// Products of few tiles and many terms, whose groups share the terms: on a GPU of many cores a few
// groups would leave most of it idle.
#pragma once

#include "common/tensor.h"
#include "metal/own_products.h"

namespace menagerie::metal {

// How the terms of a product are cut.
struct Parts {
  int64_t count, length;

  bool is_whole() const { return count == 1; }
};
// One part where the tiles alone are groups enough, or the terms too few.
Parts parts_of(const ProductExtents& p, int64_t batch);

// As `product` has it, in two kernels; `a` and `b` lie in rows or in columns.
void split_product(const Tensor& out, const Tensor& a, const Tensor& b, const ProductExtents& p,
                   const Parts& parts, const ProductTerms& terms);

}  // namespace menagerie::metal
