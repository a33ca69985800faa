// Lists of places, and reading slices of dense memory [places, inner] by them.
#include <metal_stdlib>
using namespace metal;

// Adds one axis' share to the places. Negative indices count from the end. An index out of range
// becomes the nearest one in range, and a fault that ends the run.
kernel void add_places(device long* places [[buffer(0)]], device const long* indices [[buffer(1)]],
                       constant long& size [[buffer(2)]], constant long& stride [[buffer(3)]],
                       device int* fault [[buffer(4)]], uint thread_index [[thread_position_in_grid]]) {
  long index = indices[thread_index];
  index = index < 0 ? index + size : index;
  if (index < 0 || index >= size) *fault = 1;
  places[thread_index] += clamp(index, 0L, size - 1) * stride;
}

template <typename T>
kernel void read(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                 device const long* places [[buffer(2)]], constant long& inner [[buffer(3)]],
                 uint thread_index [[thread_position_in_grid]]) {
  to[thread_index] = from[places[thread_index / inner] * inner + thread_index % inner];
}

#define INSTANTIATE(T, WIDTH)                       \
  template [[host_name("read_" #WIDTH)]] [[kernel]] \
  decltype(read<T>) read<T>;

INSTANTIATE(uchar, 1)
INSTANTIATE(ushort, 2)
INSTANTIATE(uint, 4)
INSTANTIATE(long, 8)
