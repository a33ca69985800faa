// Scattering along an axis of a dense result. The index and the source are dense, [rows, length];
// the axes of the rows have the result's strides. One thread a row, so that places that come twice
// are combined in order, or a list of places for combine.metal.
#include <metal_stdlib>
using namespace metal;

#include "reductions.h"

struct Rows {
  long length;  // of a row of the index
  long target;  // elements of the result along the axis
  long stride;  // between them
  int reduction;
  int axes;
};

// Where in the result a row begins.
long start_of(long row, constant Rows& rows, constant long* size, constant long* stride) {
  long start = 0;
  for (int axis = rows.axes - 1; axis >= 0; --axis) {
    start += row % size[axis] * stride[axis];
    row /= size[axis];
  }
  return start;
}

// Where an index is in range; else the nearest one that is, and a fault that ends the run.
long in_range(long index, constant Rows& rows, device int* fault) {
  if (index < 0 || index >= rows.target) *fault = 1;
  return clamp(index, 0L, rows.target - 1);
}

template <typename T>
kernel void scatter(device T* to [[buffer(0)]], device const long* indices [[buffer(1)]],
                    device const T* source [[buffer(2)]], constant Rows& rows [[buffer(3)]],
                    constant long* size [[buffer(4)]], constant long* stride [[buffer(5)]],
                    device int* fault [[buffer(6)]], uint row [[thread_position_in_grid]]) {
  to += start_of(row, rows, size, stride);
  for (long i = 0; i < rows.length; ++i) {
    const long at = row * rows.length + i;
    const long place = in_range(indices[at], rows, fault);
    device T* element = to + place * rows.stride;
    *element = combined(*element, source[at], rows.reduction);
  }
}

// The same places as a list, one thread an element of the index.
kernel void list_places(device long* places [[buffer(0)]], device const long* indices [[buffer(1)]],
                        constant Rows& rows [[buffer(2)]], constant long* size [[buffer(3)]],
                        constant long* stride [[buffer(4)]], device int* fault [[buffer(5)]],
                        uint thread_index [[thread_position_in_grid]]) {
  const long place = in_range(indices[thread_index], rows, fault);
  const long start = start_of(thread_index / rows.length, rows, size, stride);
  places[thread_index] = start + place * rows.stride;
}

// The mean of what was added; nothing was added where the count is zero.
kernel void divide_float(device float* sum [[buffer(0)]], device const float* count [[buffer(1)]],
                         uint i [[thread_position_in_grid]]) {
  if (count[i] > 0) sum[i] /= count[i];
}

// Rounded down.
kernel void divide_long(device long* sum [[buffer(0)]], device const long* count [[buffer(1)]],
                        uint i [[thread_position_in_grid]]) {
  if (count[i] <= 0) return;
  const long quotient = sum[i] / count[i];
  sum[i] = quotient - (sum[i] % count[i] < 0 ? 1 : 0);
}

#define INSTANTIATE(T)                             \
  template [[host_name("scatter_" #T)]] [[kernel]] \
  decltype(scatter<T>) scatter<T>;

INSTANTIATE(float)
INSTANTIATE(long)

kernel void set_float(device float* to [[buffer(0)]], constant float& value [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  to[i] = value;
}

kernel void set_long(device long* to [[buffer(0)]], constant long& value [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  to[i] = value;
}
