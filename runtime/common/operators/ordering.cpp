// Shims of sorts and scans along an axis; they check arguments.
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/tensor.h"

using namespace menagerie;

namespace {

ValuesAndIndices sorted(const Tensor& self, int64_t dim, bool descending) {
  const int32_t axis = checked_axis(self, dim);
  return backend::first_in_order(self, axis, row_length(self, axis), descending,
                                 strides_like(self));
}

// Integers become int64 unless a dtype is requested.
Tensor scanned(backend::Scan scan, const Tensor& self, int64_t dim, const int32_t* dtype) {
  const int32_t axis = checked_axis(self, dim);
  const Dtype own = is_floating(self.dtype) ? self.dtype : Dtype::kInt64;
  return backend::scanned(scan, self, axis, dtype == nullptr ? own : to_dtype(*dtype));
}

}  // namespace

MENAGERIE_OPERATOR(sort_stable)(AtenTensorHandle self, int32_t*, int64_t dim, int32_t descending,
                                AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { give(sorted(operand(self), dim, descending != 0), ret0, ret1); });
}

MENAGERIE_OPERATOR(topk)(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest, int32_t,
                         AtenTensorHandle* ret0, AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const int32_t axis = checked_axis(input, dim);
    require(k >= 0 && k <= row_length(input, axis), "k = ", k, " is not within axis ", axis, " of ",
            input);
    Extents sizes = input.size;
    const int64_t kept = input.dimensions > 0 ? k : 1;  // a scalar is its own first element
    if (input.dimensions > 0) sizes[axis] = k;
    const Extents strides = contiguous_strides({sizes.data(), input.sizes().size()});
    give(backend::first_in_order(input, axis, kept, largest != 0, strides), ret0, ret1);
  });
}

MENAGERIE_OPERATOR(cumsum)(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                           AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(scanned(backend::Scan::kSum, operand(self), dim, dtype));
  });
}

MENAGERIE_OPERATOR(cumprod)(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                            AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    *ret0 = to_handle(scanned(backend::Scan::kProduct, operand(self), dim, dtype));
  });
}

MENAGERIE_OPERATOR(logcumsumexp)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    require(is_floating(operand(self).dtype), "logarithms are of floating numbers, not of ",
            operand(self));
    *ret0 = to_handle(scanned(backend::Scan::kLogSumExp, operand(self), dim, nullptr));
  });
}

MENAGERIE_OPERATOR(cummax)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                           AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const int32_t axis = checked_axis(operand(self), dim);
    give(backend::extremes_so_far(operand(self), axis, /*largest=*/true), ret0, ret1);
  });
}

MENAGERIE_OPERATOR(cummin)(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                           AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const int32_t axis = checked_axis(operand(self), dim);
    give(backend::extremes_so_far(operand(self), axis, /*largest=*/false), ret0, ret1);
  });
}
