#include "metal/integer_product.h"

#include "common/copy.h"
#include "common/element.h"
#include "common/error.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

namespace menagerie::metal {
namespace {

// As integer_product.metal has it.
struct Product {
  int64_t m, n, k, alpha, beta;
};

}  // namespace

void integer_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                     double beta, double alpha) {
  require(out.dtype != Dtype::kBool, "truth values have no products: ", a);
  if (out.empty()) return;
  const Tensor sum = metal::empty_contiguous(Dtype::kInt64, out.sizes());
  if (self != nullptr) metal::copy(broadcast(*self, out.sizes()), sum);
  const int32_t last = out.dimensions - 1;
  const Product product{out.size[last - 1], out.size[last], a.size[last], whole_factor(alpha),
                        self == nullptr ? 0 : whole_factor(beta)};
  Arguments arguments;
  arguments.add(sum).add(converted(a, Dtype::kInt64)).add(converted(b, Dtype::kInt64));
  arguments.add(product);
  dispatch("integer_product", "multiply", arguments, threads_for(sum));
  metal::copy(sum, out);
}

}  // namespace menagerie::metal
