#include "common/host_operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/backend.h"
#include "common/copy.h"
#include "common/dtype.h"
#include "common/error.h"
#include "common/tensor.h"

namespace menagerie::host {
namespace {

using Index = std::span<const int64_t>;

// A mask broadcast to its target's sizes, and the number of its true elements.
struct Mask {
  Tensor wide;
  int64_t count = 0;

  Mask(const Tensor& mask, Index sizes) : wide(broadcast(mask, sizes)) {
    require(mask.dtype == Dtype::kBool, "the mask must be of bool, not ", mask);
    for_each_index(sizes, [&](Index index) { count += holds(index) ? 1 : 0; });
  }
  bool holds(Index index) const { return wide.data<bool>()[offset_of(wide, index)]; }
};

// Return a value's position in a sorted, contiguous row. NaN compares as in torch.
template <class T>
int64_t place_of(const T* row, int64_t length, T value, bool from_right) {
  const auto after = [](T wanted, T element) { return element > wanted; };
  const auto before = [](T element, T wanted) { return !(element >= wanted); };
  const T* found = from_right ? std::upper_bound(row, row + length, value, after)
                              : std::lower_bound(row, row + length, value, before);
  return found - row;
}

}  // namespace

Tensor empty_beside(const Tensor& other, Dtype dtype, std::span<const int64_t> sizes) {
  const Extents strides = contiguous_strides(sizes);
  const std::span wanted(strides.data(), sizes.size());
  const int32_t device = other.storage->is_on_device() ? backend::kDeviceType : kCpuDevice;
  const auto bytes = static_cast<size_t>(bytes_of(dtype, sizes, wanted));
  return make_view(backend::allocate(device, bytes), dtype, sizes, wanted, 0);
}

std::vector<Tensor> places(const Tensor& self) {
  const Tensor matrix = nonzero(self);
  std::vector<Tensor> lists;
  for (int32_t axis = 0; axis < self.dimensions; ++axis) {
    const int64_t sizes[] = {matrix.size[0]};
    const int64_t strides[] = {1};
    lists.push_back(
        make_view(matrix.storage, Dtype::kInt64, sizes, strides, axis * matrix.size[0]));
  }
  return lists;
}

Tensor nonzero(const Tensor& self) {
  std::vector<int64_t> found;
  with_type(self.dtype, [&]<class T>(T) {
    for_each_index(self.sizes(), [&](Index index) {
      if (self.data<T>()[offset_of(self, index)] != T{}) {
        found.insert(found.end(), index.begin(), index.end());
      }
    });
  });
  const int64_t axes = self.dimensions;
  int64_t count = axes == 0 ? 0 : static_cast<int64_t>(found.size()) / axes;
  if (axes == 0) {
    with_type(self.dtype, [&]<class T>(T) { count = *self.data<T>() != T{} ? 1 : 0; });
  }
  const int64_t sizes[] = {axes, count};
  const Tensor by_axis = empty_beside(self, Dtype::kInt64, sizes);
  for (int64_t i = 0; i < static_cast<int64_t>(found.size()); ++i) {
    by_axis.data<int64_t>()[i % axes * count + i / axes] = found[static_cast<size_t>(i)];
  }
  return with_axis_moved(by_axis, 0, 1);
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  const std::vector<int64_t> sizes = broadcast_sizes(std::array{self, mask});
  const Mask chosen(mask, sizes);
  const Tensor wide = broadcast(self, sizes);
  const int64_t length[] = {chosen.count};
  const Tensor out = empty_beside(self, self.dtype, length);
  with_type(self.dtype, [&]<class T>(T) {
    T* next = out.data<T>();
    for_each_index(sizes, [&](Index index) {
      if (chosen.holds(index)) *next++ = wide.data<T>()[offset_of(wide, index)];
    });
  });
  return out;
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  const std::vector<int64_t> sizes = broadcast_sizes(std::array{self, mask});
  const Mask chosen(mask, sizes);
  require(self.dtype == source.dtype, "the source ", source, " does not have the dtype of ", self);
  require(source.elements() >= chosen.count, "the mask is true ", chosen.count,
          " times, the source ", source, " has fewer elements");
  Tensor out = empty_beside(self, self.dtype, sizes);
  menagerie::copy(broadcast(self, sizes), out);
  const Tensor values = menagerie::contiguous(source);
  with_type(self.dtype, [&]<class T>(T) {
    const T* next = values.data<T>();
    for_each_index(sizes, [&](Index index) {
      if (chosen.holds(index)) out.data<T>()[offset_of(out, index)] = *next++;
    });
  });
  return out;
}

bool from_right(bool right, std::string_view side) {
  if (side.empty()) return right;
  require(side == "left" || side == "right", "side '", side, "' is neither left nor right");
  require(side == "right" || !right, "side left contradicts right");
  return side == "right";
}

Tensor in_order(const Tensor& rows, const Tensor& order) {
  require(rows.dimensions >= 1 && order.dtype == Dtype::kInt64 &&
              std::ranges::equal(order.sizes(), rows.sizes()),
          "the sorter ", order, " does not fit ", rows);
  const Tensor from = menagerie::contiguous(rows), places = menagerie::contiguous(order);
  const Tensor out = empty_contiguous(rows.dtype, rows.sizes());
  const int64_t length = rows.size[rows.dimensions - 1];
  with_type(rows.dtype, [&]<class T>(T) {
    for (int64_t i = 0; i < out.elements(); ++i) {
      const int64_t place = places.data<int64_t>()[i];
      require(place >= 0 && place < length, "the sorter names place ", place, " of ", length);
      out.data<T>()[i] = from.data<T>()[i / length * length + place];
    }
  });
  return out;
}

Tensor search(const Tensor& sorted, const Tensor& values, bool from_right, bool narrow) {
  require(sorted.dimensions >= 1, "a sorted sequence has at least one axis, not ", sorted);
  const int32_t last = sorted.dimensions - 1;
  const bool shared = last == 0;
  require(
      shared || (sorted.dimensions == values.dimensions &&
                 std::equal(sorted.size.begin(), sorted.size.begin() + last, values.size.begin())),
      "the sorted sequence ", sorted, " does not fit ", values);
  require(sorted.dtype == values.dtype, "dtypes differ: ", sorted, " and ", values);
  const Tensor rows = menagerie::contiguous(sorted);
  const int64_t length = rows.size[last];
  const int64_t row_values = values.dimensions == 0 ? 1 : values.size[values.dimensions - 1];
  Tensor out = empty_beside(values, narrow ? Dtype::kInt32 : Dtype::kInt64, values.sizes());
  with_type(values.dtype, [&]<class T>(T) {
    int64_t at = 0;
    for_each_index(values.sizes(), [&](Index index) {
      const T* row = rows.data<T>() + (shared ? 0 : at / row_values * length);
      const int64_t place =
          place_of(row, length, values.data<T>()[offset_of(values, index)], from_right);
      if (narrow) {
        out.data<int32_t>()[at] = static_cast<int32_t>(place);
      } else {
        out.data<int64_t>()[at] = place;
      }
      ++at;
    });
  });
  return out;
}

namespace {

double norm(const double* differences, int64_t length, double p) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    const double size = std::abs(differences[i]);
    if (std::isinf(p)) {
      sum = std::isnan(size) ? size : std::max(sum, size);
    } else {
      sum += p == 0   ? (std::isnan(size) ? size : size != 0)
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
  const int64_t length = row_length(self, axis);
  require(k >= 1 && k <= length, "k = ", k, " is not within axis ", axis, " of ", self);
  const int32_t last = std::max(self.dimensions - 1, 0);
  const Tensor rows =
      menagerie::contiguous(self.dimensions == 0 ? self : with_axis_moved(self, axis, last));
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
  const Tensor values = menagerie::contiguous(self);
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
  const Tensor counts = menagerie::contiguous(repeats, Dtype::kInt64);
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
  const Tensor left = menagerie::contiguous(a, Dtype::kFloat64);
  const Tensor right = menagerie::contiguous(b, Dtype::kFloat64);
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
      bool any_nan = false;
      std::transform(x, x + width, y, differences.begin(), [&](double first, double second) {
        const double difference = first - second;
        any_nan = any_nan || std::isnan(difference);
        return std::isnan(difference) && std::isinf(p) ? 0 : difference;  // as eager's maximum
      });
      const double distance = norm(differences.data(), width, p);
      out.data<T>()[at] = static_cast<T>(p == 0 && any_nan ? NAN : distance);
    }
  });
  return out;
}

namespace {

// Return the greatest common divisor by Euclid's algorithm in the dtype itself, as torch does: the
// smallest integer is its own negative.
template <class T>
T divisor(T a, T b) {
  const auto positive = [](T x) { return x < 0 ? static_cast<T>(-static_cast<uint64_t>(x)) : x; };
  a = positive(a);
  b = positive(b);
  while (a != 0) {
    const T rest = std::is_signed_v<T> && a == static_cast<T>(-1) ? T{0} : static_cast<T>(b % a);
    b = std::exchange(a, rest);
  }
  return b;
}

// Return an integer power, which wraps around; for a negative exponent it is truncated.
template <class T>
T whole_power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>) {
    if (exponent < 0 && base == -1) return exponent % 2 == 0 ? 1 : -1;
    if (exponent < 0) return base == 1 ? 1 : 0;
  }
  uint64_t power = 1;
  for (auto factor = static_cast<uint64_t>(base); exponent != 0; factor *= factor) {
    if (exponent % 2 != 0) power *= factor;
    exponent = static_cast<T>(exponent / 2);
  }
  return static_cast<T>(power);
}

// Combine integer tensors elementwise, with broadcasting.
template <class Function>
Tensor combined(const Tensor& a, const Tensor& b, Function function) {
  require(a.dtype == b.dtype, "dtypes differ: ", a, " and ", b);
  const std::vector<int64_t> sizes = broadcast_sizes(std::array{a, b});
  const Tensor left = broadcast(a, sizes), right = broadcast(b, sizes);
  Tensor out = empty_beside(b, b.dtype, sizes);
  with_type(a.dtype, [&]<class T>(T) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      T* next = out.data<T>();
      for_each_index(sizes, [&](Index index) {
        *next++ = function(left.data<T>()[offset_of(left, index)],
                           right.data<T>()[offset_of(right, index)]);
      });
    } else {
      fail("integers are wanted, not ", a);
    }
  });
  return out;
}

}  // namespace

Tensor gcd(const Tensor& a, const Tensor& b) {
  return combined(a, b, [](auto x, auto y) { return divisor(x, y); });
}

Tensor power(const Tensor& a, const Tensor& b) {
  return combined(a, b, [](auto x, auto y) { return whole_power(x, y); });
}

Tensor power(double base, const Tensor& exponents) {
  const Tensor one = empty_contiguous(exponents.dtype, {});
  with_type(exponents.dtype, [&]<class T>(T) { *one.data<T>() = static_cast<T>(base); });
  return power(one, exponents);
}

void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Tensor& output) {
  const int64_t ins = p.transposed ? input.size[1] / p.groups : weight.size[1];
  const int64_t outs = output.size[1] / p.groups;
  const Index taps(weight.size.data() + 2, p.spatial);
  // Return where a window's tap meets the input along an axis; negative where it does not.
  const auto place_of = [&](size_t axis, int64_t at, int64_t tap) {
    const int64_t reach = tap * p.dilation[axis] - p.padding[axis];
    if (!p.transposed) return at * p.stride[axis] + reach;
    return (at - reach) % p.stride[axis] == 0 ? (at - reach) / p.stride[axis] : -1;
  };
  with_type(output.dtype, [&]<class T>(T) {
    using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
    for_each_index(output.sizes(), [&](Index at) {
      const int64_t group = at[1] / outs;
      Sum sum =
          bias == nullptr ? Sum{} : static_cast<Sum>(bias->data<T>()[at[1] * bias->stride[0]]);
      for_each_index(taps, [&](Index tap) {
        int64_t from = at[0] * input.stride[0] + group * ins * input.stride[1];
        int64_t factor = p.transposed
                             ? group * ins * weight.stride[0] + at[1] % outs * weight.stride[1]
                             : at[1] * weight.stride[0];
        for (size_t axis = 0; axis < p.spatial; ++axis) {
          const int64_t place = place_of(axis, at[axis + 2], tap[axis]);
          if (place < 0 || place >= input.size[axis + 2]) return;
          from += place * input.stride[axis + 2];
          factor += tap[axis] * weight.stride[axis + 2];
        }
        const int64_t step = weight.stride[p.transposed ? 0 : 1];
        for (int64_t channel = 0; channel < ins; ++channel) {
          sum += static_cast<Sum>(input.data<T>()[from + channel * input.stride[1]]) *
                 static_cast<Sum>(weight.data<T>()[factor + channel * step]);
        }
      });
      output.data<T>()[offset_of(output, at)] = static_cast<T>(sum);
    });
  });
}

}  // namespace menagerie::host
