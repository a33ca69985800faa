// Matrix products: telling how each operand lies in memory; the device computes.
#include "metal/matmul.h"

#include <algorithm>
#include <array>

#include "common/copy.h"
#include "common/operators.h"
#include "metal/copy.h"
#include "metal/integer_product.h"
#include "metal/own_products.h"
#include "metal/packed_product.h"
#include "metal/state.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// A tensor [.., M, N] as [B, M, N], a batch that repeats one matrix as that one.
Tensor batched(const Tensor& tensor) {
  Tensor view = tensor;
  if (tensor.dimensions == 2) {
    view.dimensions = 3;
    view.size = {1, tensor.size[0], tensor.size[1]};
    view.stride = {0, tensor.stride[0], tensor.stride[1]};
  }
  if (view.stride[0] == 0) view.size[0] = 1;
  return view;
}

// The addend [1 or B, 1 or M, 1 or N]: axes along which it repeats are left to the device.
Tensor addend_of(const Tensor& self, const Tensor& out) {
  require(self.dtype == out.dtype, "the addend ", self, " has not the dtype of ", out);
  Tensor view = broadcast(self, out.sizes());
  for (int32_t axis = 0; axis < view.dimensions; ++axis) {
    if (view.stride[axis] == 0) view.size[axis] = 1;
  }
  view = batched(view);
  // The device may write the result before it has read all of the addend.
  const bool is_result = self.storage->device() == out.storage->device();
  return is_result ? backend::clone(view) : view;
}

// A sum of no products is nought, which one product with nought is too.
Tensor zeros(Dtype dtype, std::array<int64_t, 3> sizes) {
  Tensor fresh = metal::empty_contiguous(dtype, sizes);
  backend::fill_zero(fresh);
  return fresh;
}

// out = finish(alpha * a * b + beta * self); out is dense.
void encode(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self, float beta,
            float alpha, const Finishing& finishing) {
  const Tensor result = batched(out);
  const auto& size = result.size;
  ProductTerms terms{nullptr, alpha, 0, finishing};
  Tensor addend;
  if (self != nullptr && beta != 0) {  // a NaN in an unused addend is not seen, as in torch
    addend = addend_of(*self, out);
    terms.addend = &addend;
    terms.beta = beta;
  }
  if (multiply_if_packed(result, batched(a), batched(b), terms)) return;
  if (a.size[a.dimensions - 1] > 0) return product(result, batched(a), batched(b), terms);
  terms.alpha = 1;  // nought times infinity is not nought
  product(result, zeros(out.dtype, {size[0], size[1], 1}), zeros(out.dtype, {1, 1, size[2]}),
          terms);
}

}  // namespace

void metal::multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                     float beta, float alpha, const Finishing& finishing) {
  const bool in_place = out.is_contiguous();
  const Tensor result = in_place ? out : metal::empty_contiguous(out.dtype, out.sizes());
  encode(result, a, b, self, beta, alpha, finishing);
  if (!in_place) metal::copy(result, out);
}

void backend::multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor* self,
                       double beta, double alpha) {
  require(a.dtype != Dtype::kFloat64, "Metal has no float64: ", a);
  if (!is_floating(out.dtype)) return integer_product(out, a, b, self, beta, alpha);
  metal::multiply(out, a, b, self, static_cast<float>(beta), static_cast<float>(alpha), {});
}
