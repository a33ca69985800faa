// Running sums, products and extremes along an axis.
#include <algorithm>
#include <cmath>
#include <limits>

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

// log(exp(a) + exp(b)), without overflow.
double log_of_sum(double a, double b) {
  const double high = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return std::isinf(high) ? high : high + std::log1p(std::exp(std::min(a, b) - high));
}

// The values at which `better(value, best)` has last held; a NaN is the best, and of equal values
// the last.
template <class Better>
void scan_extremes(const Tensor& self, int64_t dim, AtenTensorHandle* values,
                   AtenTensorHandle* indices, Better better) {
  const int32_t axis = checked_axis(self, dim);
  Tensor out = contiguous(self);
  Tensor places = empty_contiguous(Dtype::kInt64, self.sizes());
  with_type(out.dtype, [&]<class T>(T) {
    const auto starts = row_starts(out, axis);
    for_each_row(starts.size(), [&](size_t row) {
      T best = out.data<T>()[starts[row]];
      int64_t place = 0;
      for (int64_t i = 0; i < row_length(out, axis); ++i) {
        const int64_t at = starts[row] + i * row_stride(out, axis);
        const T value = out.data<T>()[at];
        if (value != value || (best == best && better(value, best))) {
          best = value;
          place = i;
        }
        out.data<T>()[at] = best;
        places.data<int64_t>()[at] = place;
      }
    });
  });
  *values = to_handle(std::move(out));
  *indices = to_handle(std::move(places));
}

}  // namespace

AOTITorchError aoti_torch_cpu_logcumsumexp(AtenTensorHandle self, int64_t dim,
                                           AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const int32_t axis = checked_axis(operand(self), dim);
    require(is_floating(operand(self).dtype), "logarithms are of floating numbers, not of ",
            operand(self));
    Tensor out = contiguous(operand(self));
    with_type(out.dtype, [&]<class T>(T) {
      if constexpr (std::is_same_v<Accumulator<T>, double>) {
        scan_rows<T>(out, axis, log_of_sum, -std::numeric_limits<double>::infinity());
      }
    });
    *ret0 = to_handle(std::move(out));
  });
}

AOTITorchError aoti_torch_cpu_cummax(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                                     AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    scan_extremes(operand(self), dim, ret0, ret1,
                  [](auto value, auto best) { return value >= best; });
  });
}

AOTITorchError aoti_torch_cpu_cummin(AtenTensorHandle self, int64_t dim, AtenTensorHandle* ret0,
                                     AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    scan_extremes(operand(self), dim, ret0, ret1,
                  [](auto value, auto best) { return value <= best; });
  });
}

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
