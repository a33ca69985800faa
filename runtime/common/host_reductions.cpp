// The operators of host_operators.h that choose or sum along an axis.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/axes.h"
#include "common/copy.h"
#include "common/element.h"
#include "common/error.h"
#include "common/host_operators.h"

namespace menagerie::host {
namespace {

template <class T>
bool is_less(T a, T b) {
  return a < b || (b != b && a == a);
}

// Contiguous in the host's own memory.
Tensor gathered(const Tensor& tensor) {
  const Tensor fresh = empty_contiguous(tensor.dtype, tensor.sizes());
  menagerie::copy(tensor, fresh);
  return fresh;
}

double norm(const double* differences, int64_t length, double p) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    const double size = std::abs(differences[i]);
    if (std::isinf(p)) {
      sum = std::isnan(size) ? size : std::max(sum, size);
    } else {
      sum += p == 0   ? (size != 0 ? 1 : 0)
             : p == 1 ? size
             : p == 2 ? size * size
                      : std::pow(size, p);
    }
  }
  return p == 0 || p == 1 || std::isinf(p) ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

}  // namespace

ValuesAndIndices kth_value(const Tensor& self, int64_t k, int64_t dim, bool keep_axis) {
  const int32_t axis = checked_axis(self, dim);
  const int64_t length = self.dimensions == 0 ? 1 : self.size[axis];
  require(k >= 1 && k <= length, "k = ", k, " is not within axis ", axis, " of ", self);
  const int32_t last = std::max(self.dimensions - 1, 0);
  const Tensor rows = gathered(self.dimensions == 0 ? self : with_axis_moved(self, axis, last));
  std::vector<int64_t> sizes(self.sizes().begin(), self.sizes().end());
  if (!sizes.empty() && keep_axis) sizes[static_cast<size_t>(axis)] = 1;
  if (!sizes.empty() && !keep_axis) sizes.erase(sizes.begin() + axis);
  const ValuesAndIndices chosen{empty_beside(self, self.dtype, sizes),
                                empty_beside(self, Dtype::kInt64, sizes)};
  with_type(self.dtype, [&]<class T>(T) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    for (int64_t row = 0; row < chosen.values.elements(); ++row) {
      const T* values = rows.data<T>() + row * length;
      std::iota(order.begin(), order.end(), int64_t{0});
      std::nth_element(order.begin(), order.begin() + k - 1, order.end(),
                       [&](int64_t a, int64_t b) {
                         if (is_less(values[a], values[b])) return true;
                         return !is_less(values[b], values[a]) && a < b;
                       });
      chosen.values.data<T>()[row] = values[order[static_cast<size_t>(k - 1)]];
      chosen.indices.data<int64_t>()[row] = order[static_cast<size_t>(k - 1)];
    }
  });
  return chosen;
}

Tensor median(const Tensor& self) {
  const Tensor values = gathered(self);
  const int64_t count = values.elements();
  Tensor out = empty_beside(self, self.dtype, {});
  require(count > 0 || is_floating(self.dtype), "there is no median of nothing: ", self);
  with_type(self.dtype, [&]<class T>(T) {
    T* first = values.data<T>();
    T* middle = first + (count - 1) / 2;
    if (count > 0) std::nth_element(first, middle, first + count, is_less<T>);
    const bool whole = count > 0 && std::none_of(first, first + count, [](T x) { return x != x; });
    *out.data<T>() = whole ? *middle : static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  });
  return out;
}

Tensor repeat_interleave(const Tensor& repeats) {
  require(
      repeats.dimensions == 1 && (repeats.dtype == Dtype::kInt64 || repeats.dtype == Dtype::kInt32),
      "repetitions are a list of int32 or int64, not ", repeats);
  const Tensor counts = empty_contiguous(Dtype::kInt64, repeats.sizes());
  assign(repeats, counts);
  const std::span<const int64_t> each(counts.data<int64_t>(),
                                      static_cast<size_t>(counts.elements()));
  int64_t total = 0;
  for (const int64_t count : each) {
    require(count >= 0 && !__builtin_add_overflow(total, count, &total), "repetition ", count,
            " is negative or too large");
  }
  const int64_t sizes[] = {total};
  Tensor out = empty_beside(repeats, Dtype::kInt64, sizes);
  auto* next = out.data<int64_t>();
  for (size_t i = 0; i < each.size(); ++i) {
    next = std::fill_n(next, each[i], static_cast<int64_t>(i));
  }
  return out;
}

Tensor distances(const Tensor& a, const Tensor& b, double p) {
  require(a.dimensions >= 2 && a.dimensions == b.dimensions && a.dtype == b.dtype &&
              is_floating(a.dtype) && a.size[a.dimensions - 1] == b.size[b.dimensions - 1] &&
              std::equal(a.size.begin(), a.size.begin() + a.dimensions - 2, b.size.begin()) &&
              p >= 0,
          "rows do not fit: ", a, " and ", b, " with p = ", p);
  const int32_t last = a.dimensions - 1;
  const Tensor left = empty_contiguous(Dtype::kFloat64, a.sizes());
  const Tensor right = empty_contiguous(Dtype::kFloat64, b.sizes());
  assign(a, left);
  assign(b, right);
  std::vector<int64_t> sizes(a.sizes().begin(), a.sizes().end());
  sizes.back() = b.size[last - 1];
  Tensor out = empty_beside(a, a.dtype, sizes);
  const int64_t width = a.size[last];
  std::vector<double> differences(static_cast<size_t>(width));
  with_type(a.dtype, [&]<class T>(T) {
    for (int64_t at = 0; at < out.elements(); ++at) {
      const int64_t batch = at / sizes.back() / a.size[last - 1];
      const double* x = left.data<double>() + at / sizes.back() * width;
      const double* y = right.data<double>() + (batch * sizes.back() + at % sizes.back()) * width;
      std::transform(x, x + width, y, differences.begin(), std::minus<>());
      out.data<T>()[at] = static_cast<T>(norm(differences.data(), width, p));
    }
  });
  return out;
}

}  // namespace menagerie::host
