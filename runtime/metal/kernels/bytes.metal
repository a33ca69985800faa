// Copying and clearing memory as it is stored, one thread a unit of 1 to 16 bytes.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void copy_units(device const T* from [[buffer(0)]], device T* to [[buffer(1)]],
                       uint thread_index [[thread_position_in_grid]]) {
  to[thread_index] = from[thread_index];
}

template <typename T>
kernel void clear_units(device T* to [[buffer(0)]], uint thread_index [[thread_position_in_grid]]) {
  to[thread_index] = T(0);
}

#define INSTANTIATE(T, BYTES)                              \
  template [[host_name("copy_units_" #BYTES)]] [[kernel]]  \
  decltype(copy_units<T>) copy_units<T>;                   \
  template [[host_name("clear_units_" #BYTES)]] [[kernel]] \
  decltype(clear_units<T>) clear_units<T>;

INSTANTIATE(uchar, 1)
INSTANTIATE(ushort, 2)
INSTANTIATE(uint, 4)
INSTANTIATE(uint2, 8)
INSTANTIATE(uint4, 16)
