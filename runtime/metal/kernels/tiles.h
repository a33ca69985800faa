// A product of two matrices: a tile of the result a group of four SIMD groups, which sum it up in
// matrices of 8 x 8. Sums are of single precision, whatever the operands are, and rounded once.
// An operand is any type that tells its elements, zero beyond its edges, and how they lie.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"

struct Extents {
  long m;
  long n;
  long k;
  float alpha;
  float beta;
};

// Strides in elements: of the batch, of a row, of a column.
struct Strides {
  long batch;
  long row;
  long column;
};

constant constexpr int kDepth = 16;  // terms that a group holds at a time
constant constexpr int kThreads = 128;
constant constexpr int kBlock =
    512;  // terms summed by themselves: one sum of thousands rounds often

// Elements of a matrix in memory, zero beyond its edges.
template <typename T>
struct Matrix {
  device const T* data;
  Strides of;
  long rows;
  long columns;

  bool lies_in_rows() const { return of.column == 1; }
  float at(long row, long column) const {
    return row < rows && column < columns
               ? static_cast<float>(data[row * of.row + column * of.column])
               : 0.0f;
  }
};

// One tile's matrices, of which a SIMD group has the quarter from `down` and `across` on.
template <int Tile>
struct Quarter {
  static constant constexpr int kSide = Tile / 16;  // matrices down and across
  simdgroup_float8x8 sums[kSide][kSide];
  int down;
  int across;

  void clear() {
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      }
    }
  }
  // Adds the product of [Tile, kDepth] and [kDepth, Tile].
  void add(threadgroup const float* left, threadgroup const float* right) {
    for (int step = 0; step < kDepth; step += 8) {
      simdgroup_float8x8 l[kSide];
      simdgroup_float8x8 r[kSide];
      for (int i = 0; i < kSide; ++i) {
        simdgroup_load(l[i], left + (down + 8 * i) * kDepth + step, kDepth);
        simdgroup_load(r[i], right + step * Tile + across + 8 * i, Tile);
      }
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) {
          simdgroup_multiply_accumulate(sums[i][j], l[i], r[j], sums[i][j]);
        }
      }
    }
  }
  void store(threadgroup float* tile) const {
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        simdgroup_store(sums[i][j], tile + (down + 8 * i) * Tile + across + 8 * j, Tile);
      }
    }
  }
};

// out[M, N] = finish(alpha * a * b + beta * addend), the tile `group` of it.
template <typename T, int Tile, typename Out, typename Left, typename Right, typename Finishing>
void multiply_tile(device Out* out, Left a, Right b, Matrix<T> addend, Extents p, Finishing finish,
                   threadgroup float* memory, uint2 group, uint index, uint simd) {
  constexpr int kMine = Tile * Tile / kThreads;
  threadgroup float* left = memory;                   // [Tile, kDepth]
  threadgroup float* right = memory + Tile * kDepth;  // [kDepth, Tile]
  const long top = static_cast<long>(group.y) * Tile;
  const long start = static_cast<long>(group.x) * Tile;
  Quarter<Tile> quarter;
  quarter.down = simd / 2 * (Tile / 2);
  quarter.across = simd % 2 * (Tile / 2);
  float totals[kMine];
  for (int i = 0; i < kMine; ++i) totals[i] = 0;
  for (long block = 0; block < p.k; block += kBlock) {
    quarter.clear();
    for (long begin = block; begin < min(p.k, block + kBlock); begin += kDepth) {
      // Neighbours among the threads read neighbours in memory.
      for (int i = index; i < Tile * kDepth; i += kThreads) {
        const int row = a.lies_in_rows() ? i / kDepth : i % Tile;
        const int column = a.lies_in_rows() ? i % kDepth : i / Tile;
        left[row * kDepth + column] = a.at(top + row, begin + column);
      }
      for (int i = index; i < Tile * kDepth; i += kThreads) {
        const int row = b.lies_in_rows() ? i / Tile : i % kDepth;
        const int column = b.lies_in_rows() ? i % Tile : i / kDepth;
        right[row * Tile + column] = b.at(begin + row, start + column);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      quarter.add(left, right);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    quarter.store(memory);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < kMine; ++i) totals[i] += memory[i * kThreads + index];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  // Each of a thread's elements is kApart rows below the one before.
  constexpr int kApart = kThreads / Tile;
  const long row = top + index / Tile;
  const long column = start + index % Tile;
  if (column >= p.n) return;
  const long rows = p.m - row;
  device Out* to = out + row * p.n + column;
  auto beside = finish.at(row, column);
  const auto below = finish.down(kApart);
  device const T* added = addend.data + row * addend.of.row + column * addend.of.column;
  for (int i = 0; i < kMine; ++i) {
    if (i * kApart < rows) {
      float result = p.alpha * totals[i];
      // A NaN in an addend that does not count is not seen.
      if (p.beta != 0) result += p.beta * static_cast<float>(*added);
      *to = static_cast<Out>(finish(result, beside));
    }
    to += kApart * p.n;
    beside += below;
    added += kApart * addend.of.row;
  }
}
