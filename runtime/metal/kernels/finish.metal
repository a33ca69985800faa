// What follows a product, where the device has computed the product elsewhere.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"

// Of a dense [B, rows, columns], in place.
template <typename T>
kernel void finish_elements(device T* values [[buffer(0)]], constant long& rows [[buffer(1)]],
                            constant long& columns [[buffer(2)]],
                            FINISH(3, 4, 5),
                            uint thread_index [[thread_position_in_grid]]) {
  const uint width = static_cast<uint>(columns), height = static_cast<uint>(rows);
  const uint row = thread_index / width;
  const Finisher<T> finisher{&finish, other, &of_other, row / height};
  values[thread_index] = static_cast<T>(
      finisher(static_cast<float>(values[thread_index]), row % height, thread_index % width));
}

#define INSTANTIATE(T)                                     \
  template [[host_name("finish_elements_" #T)]] [[kernel]] \
  decltype(finish_elements<T>) finish_elements<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
