// Shims of what the host computes on every device (common/host_operators.h), after the device has
// finished its pending work.
#include "common/host_operators.h"
#include "common/shim_support.h"

using namespace menagerie;

MENAGERIE_OPERATOR(nonzero)(AtenTensorHandle self, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::nonzero(host_operand(self))); });
}

MENAGERIE_OPERATOR(masked_select)(AtenTensorHandle self, AtenTensorHandle mask,
                                  AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(host::masked_select(host_operand(self), host_operand(mask)));
  });
}

MENAGERIE_OPERATOR(masked_scatter)(AtenTensorHandle self, AtenTensorHandle mask,
                                   AtenTensorHandle source, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(
        host::masked_scatter(host_operand(self), host_operand(mask), host_operand(source)));
  });
}

MENAGERIE_OPERATOR(bucketize_Tensor)(AtenTensorHandle self, AtenTensorHandle boundaries,
                                     int32_t out_int32, int32_t right, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& edges = host_operand(boundaries);
    require(edges.dimensions == 1, "boundaries have one axis, not ", edges);
    *ret0 = to_handle(host::search(edges, host_operand(self), right != 0, out_int32 != 0));
  });
}

MENAGERIE_OPERATOR(searchsorted_Tensor)(AtenTensorHandle sorted_sequence, AtenTensorHandle self,
                                        int32_t out_int32, int32_t right, const char** side,
                                        AtenTensorHandle* sorter, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& given = host_operand(sorted_sequence);
    const Tensor* order = optional_operand(sorter);
    const Tensor sorted = order == nullptr ? given : host::in_order(given, *order);
    const bool from_right =
        host::from_right(right != 0, side == nullptr ? std::string_view() : *side);
    *ret0 = to_handle(host::search(sorted, host_operand(self), from_right, out_int32 != 0));
  });
}

MENAGERIE_OPERATOR(kthvalue)(AtenTensorHandle self, int64_t k, int64_t dim, int32_t keepdim,
                             AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    give(host::kth_value(host_operand(self), k, dim, keepdim != 0), ret0, ret1);
  });
}

MENAGERIE_OPERATOR(median)(AtenTensorHandle self, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::median(host_operand(self))); });
}

MENAGERIE_OPERATOR(gcd)(AtenTensorHandle self, AtenTensorHandle other, AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(host::gcd(host_operand(self), host_operand(other))); });
}

MENAGERIE_OPERATOR(pow_Tensor_Tensor)(AtenTensorHandle self, AtenTensorHandle exponent,
                                      AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(host::power(host_operand(self), host_operand(exponent)));
  });
}

MENAGERIE_OPERATOR(pow_Scalar)(double self, AtenTensorHandle exponent, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] { *ret0 = to_handle(host::power(self, host_operand(exponent))); });
}

MENAGERIE_OPERATOR(repeat_interleave_Tensor)(AtenTensorHandle repeats, int64_t*,
                                             AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(host::repeat_interleave(host_operand(repeats))); });
}

MENAGERIE_OPERATOR(_cdist_forward)(AtenTensorHandle x1, AtenTensorHandle x2, double p, int64_t*,
                                   AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(host::distances(host_operand(x1), host_operand(x2), p)); });
}
