// Products of a matrix and a vector:
// y[N] = finish(alpha * sum over k of x[k] * b[k, n] + beta * addend[n]).
// They take the time that reading the matrix takes. Sums are of single precision.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"

struct Sums {
  uint n;
  uint k;
  float alpha;
  float beta;
};

// In elements: along the sum, along the result, from one of a batch to the next.
struct Steps {
  uint x_step;
  uint x_batch;
  uint b_down;
  uint b_across;
  uint b_batch;
  uint addend_step;
  uint addend_batch;
};

// The element n is of row 0 and column n to the finisher.
template <typename T>
void store(device T* out, device const T* addend, constant Sums& p, constant Steps& step,
           Finisher<T> finisher, uint n, float sum) {
  float result = p.alpha * sum;
  const uint batch = finisher.batch;
  // A NaN in an addend that does not count is not seen.
  if (p.beta != 0) {
    result += p.beta * static_cast<float>(addend[batch * step.addend_batch + n * step.addend_step]);
  }
  out[batch * p.n + n] = static_cast<T>(finisher(result, 0, n));
}

#define OPERANDS                                                             \
  device T *out [[buffer(0)]], device const T *x [[buffer(1)]],              \
      device const T *b [[buffer(2)]], device const T *addend [[buffer(3)]], \
      constant Sums &p [[buffer(4)]], constant Steps &step [[buffer(5)]],    \
      FINISH(6, 7, 8), uint3 group [[threadgroup_position_in_grid]],         \
      uint lane [[thread_index_in_simdgroup]]

// The terms of a sum are neighbours in memory: a SIMD group an element, its lanes side by side.
template <typename T>
kernel void dot_rows(OPERANDS) {
  const uint n = group.x;
  const uint batch = group.y;
  device const T* row = b + batch * step.b_batch + n * step.b_across;
  device const T* vector = x + batch * step.x_batch;
  float sum = 0;
  for (uint k = 4 * lane; k < p.k; k += 4 * 32) {
    const uint room = min(4u, p.k - k);
    const float4 factors = four_of(vector + k * step.x_step, step.x_step, room);
    const float4 terms = four_of(row + k, 1, room);
    for (uint i = 0; i < 4; ++i) sum = fma(factors[i], terms[i], sum);
  }
  sum = simd_sum(sum);
  if (lane == 0) store(out, addend, p, step, Finisher<T>{&finish, other, &of_other, batch}, n, sum);
}

constant constexpr int kSlices = 8;

// The results are neighbours in memory: a lane an element, the SIMD groups of a group share its
// sum.
template <typename T>
kernel void sum_columns(OPERANDS,
                        uint slice [[simdgroup_index_in_threadgroup]]) {
  threadgroup float parts[kSlices][32];
  const uint n = group.x * 32 + lane;
  const uint batch = group.y;
  device const T* column = b + batch * step.b_batch + n * step.b_across;
  device const T* vector = x + batch * step.x_batch;
  float sum = 0;
  if (n < p.n) {
    for (uint k = slice; k < p.k; k += kSlices) {
      sum +=
          static_cast<float>(vector[k * step.x_step]) * static_cast<float>(column[k * step.b_down]);
    }
  }
  parts[slice][lane] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (slice != 0 || n >= p.n) return;
  for (int i = 1; i < kSlices; ++i) sum += parts[i][lane];
  store(out, addend, p, step, Finisher<T>{&finish, other, &of_other, batch}, n, sum);
}

#define INSTANTIATE(T)                                 \
  template [[host_name("dot_rows_" #T)]] [[kernel]]    \
  decltype(dot_rows<T>) dot_rows<T>;                   \
  template [[host_name("sum_columns_" #T)]] [[kernel]] \
  decltype(sum_columns<T>) sum_columns<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
