// A product of few tiles and many terms: groups have shared the terms of a tile, and their sums, of
// single precision, [B, parts, M, N], are added.
#include "tiles.h"

// out[B, M, N] = finish(alpha * (the parts' sums) + beta * addend), a thread an element.
template <typename T>
kernel void add_parts(device T* out [[buffer(0)]], device const float* sums [[buffer(1)]],
                      device const T* addend [[buffer(2)]], constant Extents& p [[buffer(3)]],
                      constant Strides& of_addend [[buffer(4)]],
                      constant Parts& parts [[buffer(5)]], FINISH(6, 7, 8),
                      uint thread_index [[thread_position_in_grid]]) {
  const uint size = p.m * p.n;
  const uint batch = thread_index / size;
  const uint place = thread_index % size;
  const uint row = place / p.n;
  const uint column = place % p.n;
  device const float* part = sums + (batch * parts.count * size + place);
  float sum = 0;
  for (uint i = 0; i < parts.count; ++i, part += size) sum += *part;
  float result = p.alpha * sum;
  // A NaN in an addend that does not count is not seen.
  if (p.beta != 0) {
    result +=
        p.beta *
        static_cast<float>(
            addend[batch * of_addend.batch + row * of_addend.row + column * of_addend.column]);
  }
  const Finisher<T> finisher{&finish, other, &of_other, batch};
  out[thread_index] = static_cast<T>(finisher(result, row, column));
}

#define INSTANTIATE(T)                               \
  template [[host_name("add_parts_" #T)]] [[kernel]] \
  decltype(add_parts<T>) add_parts<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
