// Running sums and products along an axis.
#include "common/copy.h"
#include "common/element.h"
#include "common/shim_support.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

// Single and half precision are accumulated in double and rounded at every element, as in torch.
template <class T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, T, double>;

template <class T, class Combine>
void scan_rows(const Tensor& tensor, int32_t axis, Combine combine, Accumulator<T> start) {
  const auto starts = row_starts(tensor, axis);
  for_each_row(starts.size(), [&](size_t row) {
    T* values = tensor.data<T>() + starts[row];
    Accumulator<T> running = start;
    for (int64_t i = 0; i < row_length(tensor, axis); ++i) {
      T& value = values[i * row_stride(tensor, axis)];
      running = combine(running, static_cast<Accumulator<T>>(value));
      value = static_cast<T>(running);
    }
  });
}

// The result in its dtype, filled with the values to be scanned: integers become int64 unless a
// dtype is asked for.
Tensor converted(const Tensor& self, const int32_t* dtype) {
  const Dtype own = is_floating(self.dtype) ? self.dtype : Dtype::kInt64;
  Tensor out = empty_contiguous(dtype == nullptr ? own : to_dtype(*dtype), self.sizes());
  assign(self, out);
  return out;
}

}  // namespace

AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                     AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const int32_t axis = checked_axis(operand(self), dim);
    Tensor out = converted(operand(self), dtype);
    with_type(out.dtype, [&]<class T>(T) {
      scan_rows<T>(out, axis, [](auto sum, auto value) { return sum + value; }, 0);
    });
    *ret0 = to_handle(std::move(out));
  });
}

AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t* dtype,
                                      AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const int32_t axis = checked_axis(operand(self), dim);
    Tensor out = converted(operand(self), dtype);
    with_type(out.dtype, [&]<class T>(T) {
      scan_rows<T>(out, axis, [](auto product, auto value) { return product * value; }, 1);
    });
    *ret0 = to_handle(std::move(out));
  });
}
