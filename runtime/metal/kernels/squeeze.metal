// Images pooled to a mean a channel, and two products of these: a squeeze and an excitation, as
// transforms/passes/metal/fuse_epilogues.py finds them. A group computes all of the first product
// and its own share of the second one.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"

struct Squeeze {
  uint channels;
  uint places;
  uint lanes;  // that share a channel's places
  uint middle;
  uint results;
  int first;  // steps behind the first product; the others follow the second one
  int has_biases[2];
};

constant constexpr uint kThreads = 512, kLanes = 8, kMost = 2048;

// The sum of a row's elements, multiplied if there are factors, in all of its lanes.
template <typename T>
float sum_of(device const T* row, threadgroup const float* factors, uint count, uint lanes,
             uint index) {
  const uint lane = index % lanes, whole = count / 4 * 4;
  float4 sums = float4(0.0f);
  for (uint at = lane * 4; at < whole; at += lanes * 4) {
    const float4 four = four_of(row + at);
    float4 by = float4(1.0f);
    if (factors) by = *reinterpret_cast<threadgroup const float4*>(factors + at);
    for (uint i = 0; i < 4; ++i) sums[i] = fma(four[i], by[i], sums[i]);
  }
  float sum = sums[0] + sums[1] + sums[2] + sums[3];
  for (uint at = whole + lane; at < count; at += lanes) {
    sum = fma(static_cast<float>(row[at]), factors ? factors[at] : 1.0f, sum);
  }
  for (uint apart = lanes / 2; apart > 0; apart /= 2) sum += simd_shuffle_xor(sum, apart);
  return sum;
}

// All lanes of a SIMD group come here: a row past the last one repeats it.
template <typename T>
float excited(device const T* weight, device const T* bias, threadgroup const float* factors,
              uint count, uint row, int has_bias, constant Finish& finish, int begin, int end,
              uint index) {
  float value = sum_of(weight + row * count, factors, count, kLanes, index);
  if (has_bias) value += static_cast<float>(bias[row]);
  for (int i = begin; i < end; ++i) {
    value = activated(finish.steps[i], value, finish.low[i], finish.high[i]);
  }
  return value;
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(kThreads)]] void squeeze(
    device T* out [[buffer(0)]], device const T* images [[buffer(1)]],
    device const T* down [[buffer(2)]], device const T* down_bias [[buffer(3)]],
    device const T* up [[buffer(4)]], device const T* up_bias [[buffer(5)]],
    constant Squeeze& p [[buffer(6)]], constant Finish& finish [[buffer(7)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float4 memory[2][kMost / 4];  // of vectors, which are read
  threadgroup float* means = reinterpret_cast<threadgroup float*>(memory[0]);
  threadgroup float* middle = reinterpret_cast<threadgroup float*>(memory[1]);
  device const T* image = images + group.y * p.channels * p.places;
  for (uint row = index / p.lanes, at = 0; at < p.channels; at += kThreads / p.lanes) {
    const uint channel = min(at + row, p.channels - 1);
    const float sum =
        sum_of(image + channel * p.places, nullptr, p.places, p.lanes, index);
    if (index % p.lanes == 0 && channel == at + row) means[channel] = sum / p.places;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  constexpr uint kRows = kThreads / kLanes;
  const uint own = index / kLanes;
  for (uint at = own; at - own < p.middle; at += kRows) {
    const uint row = min(at, p.middle - 1);
    const float value = excited(down, down_bias, means, p.channels, row, p.has_biases[0], finish, 0,
                                p.first, index);
    if (index % kLanes == 0 && row == at) middle[row] = value;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint end = min(p.results, (group.x + 1) * 2 * kRows);
  for (uint at = group.x * 2 * kRows + own; at - own < end; at += kRows) {
    const uint row = min(at, end - 1);
    const float value = excited(up, up_bias, middle, p.middle, row, p.has_biases[1], finish,
                                p.first, finish.count, index);
    if (index % kLanes == 0 && row == at) out[group.y * p.results + row] = static_cast<T>(value);
  }
}

#define INSTANTIATE(T) \
  template [[host_name("squeeze_" #T)]] [[kernel]] decltype(squeeze<T>) squeeze<T>;

INSTANTIATE(float)
INSTANTIATE(half)
INSTANTIATE(bfloat)
