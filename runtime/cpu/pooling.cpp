// Pooling over images and volumes, for windows that are too large for generated loops, and adaptive
// pooling.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "common/dtype.h"
#include "common/operators.h"
#include "common/windows.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

// The ranges of depth, height and width that one element of the result reads.
using Place = std::array<WindowExtent, 3>;

// Call body(plane, output offset, place) for every element of the result.
template <class T, class Body>
void for_each_window(const Windows& windows, const Tensor& out, Body&& body) {
  const Tensor& input = windows.input;
  for_each_row(static_cast<size_t>(out.size[0] * out.size[1]), [&](size_t row) {
    const int64_t n = static_cast<int64_t>(row) / out.size[1];
    const int64_t c = static_cast<int64_t>(row) % out.size[1];
    const T* plane = input.data<T>() + n * input.stride[0] + c * input.stride[1];
    const int64_t target = n * out.stride[0] + c * out.stride[1];
    const int64_t sizes[] = {out.size[2], out.size[3], out.size[4]};
    for_each_index(sizes, [&](std::span<const int64_t> index) {
      int64_t offset = target;
      Place place;
      for (size_t axis = 0; axis < 3; ++axis) {
        offset += index[axis] * out.stride[2 + axis];
        place[axis] = windows.axes[axis].extent(index[axis]);
      }
      body(plane, offset, place);
    });
  });
}

// Call body(offset in the plane, number of the element in the plane) inside a window.
template <class Body>
void for_each_element(const Windows& windows, const Place& place, Body&& body) {
  const auto& [z, y, x] = place;
  const auto& stride = windows.input.stride;
  for (int64_t k = z.first; k < z.end; k += z.step) {
    for (int64_t j = y.first; j < y.end; j += y.step) {
      const int64_t line = (k * windows.axes[1].input + j) * windows.axes[2].input;
      for (int64_t i = x.first; i < x.end; i += x.step) {
        body(k * stride[2] + j * stride[3] + i * stride[4], line + i);
      }
    }
  }
}

template <class T>
void average_windows(const Windows& windows, const Tensor& out, bool count_padding,
                     std::optional<int64_t> divisor) {
  for_each_window<T>(windows, out, [&](const T* plane, int64_t target, const Place& place) {
    using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    Sum sum = 0;
    for_each_element(windows, place,
                     [&](int64_t at, int64_t) { sum += static_cast<Sum>(plane[at]); });
    int64_t inside = 1;
    int64_t padded = 1;
    for (const WindowExtent& stretch : place) {
      inside *= stretch.end - stretch.first;
      padded *= stretch.padded_length;
    }
    const int64_t count = divisor.value_or(count_padding ? padded : inside);
    out.data<T>()[target] = static_cast<T>(sum / static_cast<Sum>(count));
  });
}

// Indices count the elements of the plane. NaN wins, and of equal values the last, as in torch.
template <class T>
void largest_of_windows(const Windows& windows, const Tensor& out, const Tensor& indices) {
  for_each_window<T>(windows, out, [&](const T* plane, int64_t target, const Place& place) {
    int64_t best = -1;
    T most{};
    for_each_element(windows, place, [&](int64_t at, int64_t number) {
      const T value = plane[at];
      if (best < 0 || value > most || value != value) {
        most = value;
        best = number;
      }
    });
    out.data<T>()[target] = most;
    indices.data<int64_t>()[target] = best;
  });
}

Tensor empty_result(const Tensor& self, const PooledGeometry& geometry, Dtype dtype) {
  const auto axes = static_cast<size_t>(self.dimensions);
  return empty_strided(dtype, {geometry.sizes.data(), axes}, {geometry.strides.data(), axes});
}

}  // namespace

Tensor backend::average(const Tensor& self, const Windows& windows, const PooledGeometry& geometry,
                        bool count_padding, std::optional<int64_t> divisor) {
  Tensor output = empty_result(self, geometry, self.dtype);
  if (output.empty()) return output;
  const Tensor volumes = as_volumes(output, windows.spatial);
  with_type(self.dtype,
            [&]<class T>(T) { average_windows<T>(windows, volumes, count_padding, divisor); });
  return output;
}

ValuesAndIndices backend::largest(const Tensor& self, const Windows& windows,
                                  const PooledGeometry& geometry) {
  ValuesAndIndices out{empty_result(self, geometry, self.dtype),
                       empty_result(self, geometry, Dtype::kInt64)};
  if (out.values.empty()) return out;
  with_type(self.dtype, [&]<class T>(T) {
    largest_of_windows<T>(windows, as_volumes(out.values, windows.spatial),
                          as_volumes(out.indices, windows.spatial));
  });
  return out;
}
