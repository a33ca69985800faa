// Products of half precision by the matrix units of GPUs from generation 17 on (M5; phones from 18
// on), through Metal 4's operation on tensors. A group of four SIMD groups makes a tile of 64 x 64,
// as the kernels of matrix_product.metal do, with their arguments. Which thread holds which element
// of a tile is not specified. Sums are of single precision.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

#include "tiles.h"

using namespace mpp::tensor_ops;

constant constexpr int kTile = 64;

// An operand of a tile: `inner` elements that are neighbours, `outer` times so far apart.
template <typename T>
using Operand = tensor<device T, dextents<int, 2>, tensor_inline>;

template <typename T>
Operand<T> operand(device const T* from, uint inner, uint outer, uint apart) {
  return Operand<T>(const_cast<device T*>(from), dextents<int, 2>(int(inner), int(outer)),
                    array<int, 2>{1, int(apart)});
}

// Writes the tile's sums, of `down` rows and `across` columns that count, to the group's memory.
template <typename T, bool kTurnedLeft, bool kTurnedRight>
void sum_tile(device const T* a, device const T* b, uint apart_a, uint apart_b, uint down,
              uint across, uint terms, threadgroup float* memory) {
  constexpr auto tile = matmul2d_descriptor(kTile, kTile, static_cast<int>(dynamic_extent),
                                            kTurnedLeft, kTurnedRight);
  matmul2d<tile, execution_simdgroups<4>> product;
  const Operand<T> left =
      kTurnedLeft ? operand(a, down, terms, apart_a) : operand(a, terms, down, apart_a);
  const Operand<T> right =
      kTurnedRight ? operand(b, terms, across, apart_b) : operand(b, across, terms, apart_b);
  auto sums =
      product.template get_destination_cooperative_tensor<Operand<T>, Operand<T>, float>();
  product.run(left, right, sums);
  for (ushort i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    const auto place = sums.get_multidimensional_index(i);
    memory[place[1] * kTile + place[0]] = sums[i];
  }
}

template <typename T>
kernel void multiply(device T* out [[buffer(0)]], device const T* a [[buffer(1)]],
                     device const T* b [[buffer(2)]], device const T* addend [[buffer(3)]],
                     constant Extents& p [[buffer(4)]], constant Strides& of_a [[buffer(5)]],
                     constant Strides& of_b [[buffer(6)]],
                     constant Strides& of_addend [[buffer(9)]], FINISH(10, 11, 12),
                     device float* parts_sums [[buffer(13)]], constant Parts& parts [[buffer(14)]],
                     uint3 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float memory[kTile * kTile];
  const Task task = task_of(group.z, p, parts);
  const uint row = group.y * kTile, column = group.x * kTile;
  const uint down = min(p.m - row, uint(kTile)), across = min(p.n - column, uint(kTile));
  device const T* left = a + (task.batch * of_a.batch + task.first * of_a.column + row * of_a.row);
  device const T* right =
      b + (task.batch * of_b.batch + task.first * of_b.row + column * of_b.column);
  // An operand's axis of one element has the stride 0.
  const bool turned_left = of_a.column > 1, turned_right = of_b.column > 1;
  if (turned_left && turned_right) {
    sum_tile<T, true, true>(left, right, of_a.column, of_b.column, down, across, task.terms,
                            memory);
  } else if (turned_left) {
    sum_tile<T, true, false>(left, right, of_a.column, of_b.row, down, across, task.terms, memory);
  } else if (turned_right) {
    sum_tile<T, false, true>(left, right, of_a.row, of_b.column, down, across, task.terms, memory);
  } else {
    sum_tile<T, false, false>(left, right, of_a.row, of_b.row, down, across, task.terms, memory);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Result<T> to{out, addend, parts_sums, parts.count == 1, of_addend, p,
                     {&finish, other, &of_other, task.batch}};
  // Eight threads a row.
  const uint first = index % 8 * 8;
  if (first >= across) return;
  for (uint at = index / 8; at < down; at += kThreads / 8) {
    threadgroup const float* from = memory + (at * kTile + first);
    Run<2> run;
    for (uint i = 0; i < 2; ++i) run.fours[i] = reinterpret_cast<threadgroup const float4*>(from)[i];
    to.take(run, group, row + at, column + first);
  }
}

#define INSTANTIATE(T)                                             \
  template [[host_name("multiply_by_units_" #T "_64")]] [[kernel]] \
  decltype(multiply<T>) multiply<T>;

INSTANTIATE(half)
INSTANTIATE(bfloat)
