// Reading and writing elements by lists of positions.
#include <algorithm>
#include <vector>

#include "common/copy.h"
#include "common/element.h"
#include "common/operators.h"
#include "cpu/widened.h"

using namespace menagerie;

namespace {

// Offsets in elements of the slices that the lists name.
std::vector<int64_t> places_of(const Tensor& self, const Indices& indices) {
  std::vector<int64_t> places(static_cast<size_t>(indices.count()), 0);
  for (size_t i = 0; i < indices.lists.size(); ++i) {
    const Tensor& index = indices.lists[i];
    const int64_t size = self.size[indices.axes[i]];
    size_t at = 0;
    for_each_index(indices.sizes, [&](std::span<const int64_t> position) {
      int64_t offset = 0;
      for (size_t axis = 0; axis < position.size(); ++axis) {
        offset += position[axis] * index.stride[axis];
      }
      const int64_t found = index.data<int64_t>()[offset];
      require(found >= -size && found < size, "index ", found, " is not in axis ", indices.axes[i],
              " of ", self);
      places[at++] += (found < 0 ? found + size : found) * self.stride[indices.axes[i]];
    });
  }
  return places;
}

// The part of a tensor that stays behind the indexed axes.
Tensor slice_of(const Tensor& first, size_t indexed) {
  Tensor slice = first;
  slice.dimensions -= static_cast<int32_t>(indexed);
  std::shift_left(slice.size.begin(), slice.size.end(), static_cast<std::ptrdiff_t>(indexed));
  std::shift_left(slice.stride.begin(), slice.stride.end(), static_cast<std::ptrdiff_t>(indexed));
  return slice;
}

// Calls body(offset in self, number of the element in the result) for all that the lists name.
template <class Body>
void for_each_named(const Tensor& self, const Indices& indices, Body&& body) {
  const Tensor slice = slice_of(indices.indexed_first(self), indices.axes.size());
  int64_t number = 0;
  for (const int64_t place : places_of(self, indices)) {
    for_each_index(slice.sizes(), [&](std::span<const int64_t> index) {
      int64_t offset = place;
      for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * slice.stride[axis];
      body(offset, number++);
    });
  }
}

}  // namespace

Tensor backend::read_at(const Tensor& self, const Indices& indices) {
  const Tensor out = empty_contiguous(self.dtype, indices.result_sizes(self));
  with_type(self.dtype, [&]<class T>(T) {
    for_each_named(self, indices, [&](int64_t offset, int64_t number) {
      out.data<T>()[number] = self.data<T>()[offset];
    });
  });
  const Tensor arranged = indices.arranged(out);
  return arranged.is_contiguous() ? arranged : contiguous(arranged);
}

Tensor backend::put_at(const Tensor& self, const Indices& indices, const Tensor& values,
                       bool accumulate) {
  const Tensor out = menagerie::clone(self);
  if (accumulate && is_half(self.dtype)) {
    menagerie::assign(put_at(widened(self), indices, widened(values), true), out);
    return out;
  }
  const Tensor from = contiguous(values);
  with_type(out.dtype, [&]<class T>(T) {
    for_each_named(out, indices, [&](int64_t offset, int64_t number) {
      T& element = out.data<T>()[offset];
      const T value = from.data<T>()[number];
      element = accumulate ? static_cast<T>(element + value) : value;
    });
  });
  return out;
}
