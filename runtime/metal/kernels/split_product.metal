// A product of few tiles and many terms: groups share the terms of a tile, and their sums, of single
// precision, are added by a kernel more.
#include "tiles.h"

constant constexpr int kTile = 32;

// Into how many parts the terms are cut, and how long each is; the last one may be shorter.
struct Parts {
  long count;
  long length;
};

struct Unfinished {
  int at(long, long) const { return 0; }
  int down(long) const { return 0; }
  float operator()(float value, int) const { return value; }
};

// sums[B, count, M, N], each of one part's terms.
template <typename T>
kernel void multiply_parts(device float* sums [[buffer(0)]], device const T* a [[buffer(1)]],
                           device const T* b [[buffer(2)]], constant Extents& p [[buffer(3)]],
                           constant Strides& of_a [[buffer(4)]],
                           constant Strides& of_b [[buffer(5)]],
                           constant Parts& parts [[buffer(6)]],
                           uint3 group [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float memory[kTile * kTile];
  const long batch = group.z / parts.count;
  const long first = group.z % parts.count * parts.length;
  const long terms = min(parts.length, p.k - first);
  const Matrix<T> left{a + batch * of_a.batch + first * of_a.column, of_a, p.m, terms};
  const Matrix<T> right{b + batch * of_b.batch + first * of_b.row, of_b, terms, p.n};
  const Extents part{p.m, p.n, terms, 1.0f, 0.0f};
  const Matrix<T> unread = left;
  multiply_tile<T, kTile>(sums + group.z * p.m * p.n, left, right, unread, part, Unfinished{},
                          memory, group.xy, index, simd);
}

// out[B, M, N] = finish(alpha * (the parts' sums) + beta * addend), a thread an element.
template <typename T>
kernel void add_parts(device T* out [[buffer(0)]], device const float* sums [[buffer(1)]],
                      device const T* addend [[buffer(2)]], constant Extents& p [[buffer(3)]],
                      constant Strides& of_addend [[buffer(4)]],
                      constant Parts& parts [[buffer(5)]], device const T* other [[buffer(6)]],
                      constant Finish& finish [[buffer(7)]],
                      constant Beside& of_other [[buffer(8)]],
                      uint thread_index [[thread_position_in_grid]]) {
  const uint width = static_cast<uint>(p.n);
  const uint size = static_cast<uint>(p.m) * width;
  const uint batch = thread_index / size;
  const uint place = thread_index % size;
  const uint row = place / width;
  const uint column = place % width;
  device const float* part = sums + batch * parts.count * size + place;
  float sum = 0;
  for (long i = 0; i < parts.count; ++i, part += size) sum += *part;
  float result = p.alpha * sum;
  // A NaN in an addend that does not count is not seen.
  if (p.beta != 0) {
    const Matrix<T> added{addend + batch * of_addend.batch, of_addend, p.m, p.n};
    result += p.beta * added.at(row, column);
  }
  const Finisher<T> finisher{&finish, other, &of_other, batch};
  out[thread_index] = static_cast<T>(finisher(result, row, column));
}

#define INSTANTIATE(T)                                    \
  template [[host_name("multiply_parts_" #T)]] [[kernel]] \
  decltype(multiply_parts<T>) multiply_parts<T>;          \
  template [[host_name("add_parts_" #T)]] [[kernel]]      \
  decltype(add_parts<T>) add_parts<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
