// Shims of the host's linear algebra (common/linear_algebra.h); both operands' batches are equal.
#include "common/linear_algebra.h"

#include "common/shim_support.h"

using namespace menagerie;

namespace {

void give(std::vector<Tensor> results, std::initializer_list<AtenTensorHandle*> targets) {
  auto next = results.begin();
  for (AtenTensorHandle* target : targets) *target = to_handle(std::move(*next++));
}

}  // namespace

MENAGERIE_OPERATOR(cholesky_factor)(AtenTensorHandle self, int32_t check, AtenTensorHandle* ret0,
                                    AtenTensorHandle* ret1) {
  return kernel(__func__,
                [&] { give(host::cholesky(host_operand(self), check != 0), {ret0, ret1}); });
}

MENAGERIE_OPERATOR(lu_factor)(AtenTensorHandle self, int32_t check, AtenTensorHandle* ret0,
                              AtenTensorHandle* ret1, AtenTensorHandle* ret2) {
  return kernel(__func__,
                [&] { give(host::lu_factor(host_operand(self), check != 0), {ret0, ret1, ret2}); });
}

MENAGERIE_OPERATOR(lu_permutation)(AtenTensorHandle pivots, int64_t rows, AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(host::lu_permutation(host_operand(pivots), rows)); });
}

MENAGERIE_OPERATOR(triangle_solved)(AtenTensorHandle self, AtenTensorHandle other, int32_t upper,
                                    int32_t unit, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(
        host::solve_triangular(host_operand(self), host_operand(other), upper != 0, unit != 0));
  });
}

MENAGERIE_OPERATOR(qr_factor)(AtenTensorHandle self, AtenTensorHandle* ret0,
                              AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { give(host::qr_factor(host_operand(self)), {ret0, ret1}); });
}

MENAGERIE_OPERATOR(reflectors_product)(AtenTensorHandle self, AtenTensorHandle factors,
                                       AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(host::householder_product(host_operand(self), host_operand(factors)));
  });
}

MENAGERIE_OPERATOR(symmetric_eigen)(AtenTensorHandle self, AtenTensorHandle* ret0,
                                    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { give(host::eigh(host_operand(self)), {ret0, ret1}); });
}

MENAGERIE_OPERATOR(singular_values)(AtenTensorHandle self, AtenTensorHandle* ret0,
                                    AtenTensorHandle* ret1, AtenTensorHandle* ret2) {
  return kernel(__func__, [&] { give(host::svd(host_operand(self)), {ret0, ret1, ret2}); });
}
