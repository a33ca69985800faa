// Matrix products by the device's own graphs.
#pragma once

#include "metal/own_products.h"

namespace menagerie::metal {

// As `product` says. A graph takes dense operands: of others, copies are made.
void product_by_graph(const Tensor& out, const Tensor& a, const Tensor& b,
                      const ProductTerms& terms);

}  // namespace menagerie::metal
