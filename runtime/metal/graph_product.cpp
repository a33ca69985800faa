#include "metal/graph_product.h"

#include <array>

#include "common/copy.h"
#include "metal/copy.h"

namespace menagerie::metal {
namespace {

// An operand as the descriptor wants it: matrices one after another, each whole in rows or, when
// transposed, in columns.
struct Matrices {
  Tensor tensor;
  bool transposed = false;
};

Matrices matrices_of(const Tensor& given) {
  Tensor view = given;
  if (view.stride[0] == 0) view.size[0] = 1;
  const int64_t whole = view.size[1] * view.size[2];
  if (has_strides(view, std::array{whole, view.size[2], int64_t{1}})) return {view, false};
  if (has_strides(view, std::array{whole, int64_t{1}, view.size[1]})) return {view, true};
  return {dense(view), false};
}

// Matrices that repeat one another, each in a place of its own.
Tensor clone_of_all(const Tensor& matrices, int64_t batch) {
  const std::array sizes{batch, matrices.size[1], matrices.size[2]};
  const Tensor fresh = metal::empty_contiguous(matrices.dtype, sizes);
  metal::copy(broadcast(matrices, sizes), fresh);
  return fresh;
}

}  // namespace

void product_by_graph(const Tensor& out, const Tensor& a, const Tensor& b,
                      const ProductTerms& terms) {
  Matrices left = matrices_of(a);
  const Matrices right = matrices_of(b);
  // The one product of two operands that both repeat would be of another size than the result.
  if (left.tensor.size[0] == 1 && right.tensor.size[0] == 1 && out.size[0] > 1) {
    left = {clone_of_all(a, out.size[0]), false};
  }
  MatmulDescriptor descriptor{.dtype = out.dtype,
                              .batch = out.size[0],
                              .m = out.size[1],
                              .n = out.size[2],
                              .k = a.size[2],
                              .a_transposed = left.transposed,
                              .b_transposed = right.transposed,
                              .a_batch = left.tensor.size[0],
                              .b_batch = right.tensor.size[0],
                              .alpha = terms.alpha,
                              .beta = terms.addend == nullptr ? 1 : terms.beta,
                              .addend = std::nullopt};
  MatmulOperands operands{region_of(left.tensor), region_of(right.tensor), {}, region_of(out)};
  if (terms.addend != nullptr) {
    const Tensor addend = dense(*terms.addend);
    descriptor.addend = {addend.size[0], addend.size[1], addend.size[2]};
    operands.addend = region_of(addend);
  }
  State::current().stream().matmul(descriptor, operands);
  finish_elements(operands.out, out.dtype, out.size[0], out.size[1], out.size[2], terms.finishing);
}

}  // namespace menagerie::metal
