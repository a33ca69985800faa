// Running sums, products, extremes along an axis on the device. All are computed in float32 or
// int64.
#include "common/axes.h"
#include "common/shim_support.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// The result, in its own dtype: integers become int64 unless a dtype is asked for.
Tensor scanned(const std::string& function, const Tensor& self, int64_t dim, const int32_t* dtype) {
  const int32_t axis = checked_axis(self, dim);
  const Dtype own = is_floating(self.dtype) ? self.dtype : Dtype::kInt64;
  const Dtype wanted = dtype == nullptr ? own : to_dtype(*dtype);
  const Tensor from = converted(converted(self, wanted), wide(wanted));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  const Rows rows = rows_along(from, axis);
  Arguments arguments;
  arguments.add(from).add(to).add(rows.length).add(rows.inner);
  if (!to.empty()) {
    dispatch("scan", function + metal_name(to.dtype), arguments, threads_for(rows.count()));
  }
  return converted(to, wanted);
}

void extremes(const Tensor& self, int64_t dim, int32_t sign, AtenTensorHandle* values,
              AtenTensorHandle* indices) {
  const int32_t axis = checked_axis(self, dim);
  const Tensor from = converted(self, wide(self.dtype));
  const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
  Tensor where = metal::empty_contiguous(Dtype::kInt64, from.sizes());
  const Rows rows = rows_along(from, axis);
  Arguments arguments;
  arguments.add(from).add(to).add(where).add(rows.length).add(rows.inner).add(sign);
  if (!to.empty()) {
    dispatch("scan", "cumextreme_" + metal_name(to.dtype), arguments, threads_for(rows.count()));
  }
  *values = to_handle(converted(to, self.dtype));
  *indices = to_handle(std::move(where));
}

}  // namespace

AOTITorchError aoti_torch_mps_cumsum(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                     AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(scanned("cumsum_", operand(self), dim, dtype)); });
}

AOTITorchError aoti_torch_mps_cumprod(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                      AtenTensorHandle* ret0) {
  return kernel(__func__,
                [&] { *ret0 = to_handle(scanned("cumprod_", operand(self), dim, dtype)); });
}

AOTITorchError aoti_torch_mps_logcumsumexp(AtenTensorHandle self, int64_t dim,
                                           AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    require(is_floating(input.dtype), "logarithms are of floating numbers, not of ", input);
    const int32_t axis = checked_axis(input, dim);
    const Tensor from = converted(input, wide(input.dtype));
    const Tensor to = metal::empty_contiguous(from.dtype, from.sizes());
    const Rows rows = rows_along(from, axis);
    Arguments arguments;
    arguments.add(from).add(to).add(rows.length).add(rows.inner);
    if (!to.empty()) dispatch("scan", "logcumsumexp", arguments, threads_for(rows.count()));
    *ret0 = to_handle(converted(to, input.dtype));
  });
}

AOTITorchError aoti_torch_mps_cummax(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                                     AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { extremes(operand(self), dim, 1, ret0, ret1); });
}

AOTITorchError aoti_torch_mps_cummin(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                                     AtenTensorHandle* ret1) {
  return kernel(__func__, [&] { extremes(operand(self), dim, -1, ret0, ret1); });
}
