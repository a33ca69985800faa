// A product of two matrices: a tile of the result a group of four SIMD groups, which sum it up in
// matrices of 8 x 8. Sums are of single precision, whatever the operands are, and rounded once.
// An operand has lines, of which each gives a row or a column of the result, and terms along them.
// It is any type that can begin at a tile's first line, hold a step's terms in the group's memory,
// and prepare the next step while the group multiplies.
#include <metal_stdlib>
using namespace metal;

#include "finish.h"

struct Extents {
  uint m;
  uint n;
  uint k;
  float alpha;
  float beta;
};

// Strides in elements: of the batch, of a row, of a column.
struct Strides {
  uint batch;
  uint row;
  uint column;
};

// Into how many parts the terms are cut, each summed by groups of its own, and how long each is;
// the last one may be shorter.
struct Parts {
  uint count;
  uint length;
};

// Which of a batch a group works at, and which of its terms.
struct Task {
  uint batch;
  uint first;
  uint terms;
};

Task task_of(uint z, constant Extents& p, constant Parts& parts) {
  if (parts.count == 1) return {z, 0, p.k};
  const uint batch = z / parts.count, first = (z - batch * parts.count) * parts.length;
  return {batch, first, min(parts.length, p.k - first)};
}

constant constexpr uint kThreads = 128;
constant constexpr uint kBlock =
    512;  // terms summed by themselves: one sum of thousands rounds often

// A step's terms of a tile's lines in the group's memory, a line in a row or a term in a row. Rows
// are four longer than they need be, so that neighbours below lie in other banks.
template <int Tile, bool kLines>
struct Held {
  static constant constexpr uint kTerms = 1024 / Tile;
  static constant constexpr uint kLine = kLines ? kTerms + 4 : 1;
  static constant constexpr uint kTerm = kLines ? 1 : Tile + 4;
  threadgroup float* all;

  uint at(uint line, uint term) const { return line * kLine + term * kTerm; }
  // Four that are neighbours along a line, or across lines.
  void put(uint place, bool along, float4 four) const {
    threadgroup float* to = all + place;
    if (along == kLines) {
      *reinterpret_cast<threadgroup float4*>(to) = four;
      return;
    }
    for (uint i = 0; i < 4; ++i) to[i * (kLines ? kLine : kTerm)] = four[i];
  }
};

// What a group has of its memory: both operands of a step, or the tile of the result.
#define MEMORY(Tile) ((Tile) == 64 ? 64 * 64 : 2 * 32 * 36)

// Element by element, zero beyond an operand's edges. Neighbours among the threads read neighbours
// in memory.
template <int Tile, bool kLines, typename Operand>
void hold_elements(Held<Tile, kLines> held, const thread Operand& from, uint first, uint begin,
                   uint index) {
  constexpr uint kTerms = Held<Tile, kLines>::kTerms;
  const bool along = from.lies_along();
  for (uint i = index; i < Tile * kTerms; i += kThreads) {
    const uint line = along ? i / kTerms : i % Tile;
    const uint term = along ? i % kTerms : i / Tile;
    held.all[held.at(line, term)] = from.at(first + line, begin + term);
  }
}

// Lines in memory. A thread reads two vectors of a step, each four terms of a line or of four
// lines.
template <typename T, bool kScaled = false>
struct Matrix {
  device const T* data;
  uint apart;  // from a line to the next
  uint step;   // from a term to the next
  uint lines;
  uint terms;
  device const T* factors;  // of terms, if it is scaled
  uint factor_step;
  // A thread's own: the first line, where its next vector lies, how far the second one is from it,
  // and where the two are held.
  uint first;
  device const T* from;
  uint hop;
  uint place;

  bool lies_along() const { return apart != 1; }
  float at(uint line, uint term) const {
    return line < lines && term < terms
               ? static_cast<float>(data[line * apart + term * step]) * factor(term)
               : 0.0f;
  }

  float factor(uint term) const {
    return kScaled ? static_cast<float>(factors[term * factor_step]) : 1.0f;
  }
  float4 scaled(float4 four, uint term, bool along) const {
    if (!kScaled) return four;
    for (uint i = 0; i < 4; ++i) four[i] *= factor(along ? term + i : term);
    return four;
  }

  // Lines past the last one repeat it: what they give is not stored.
  template <int Tile, bool kLines>
  void begin(Held<Tile, kLines> held, uint line, uint index) {
    constexpr uint kFours = held.kTerms / 4, kAcross = Tile / 4;
    first = line;
    if (lies_along()) {
      const uint own = index / kFours, term = index % kFours * 4;
      const uint upper = min(first + own, lines - 1) * apart;
      from = data + (upper + term);
      hop = min(first + own + kThreads / kFours, lines - 1) * apart - upper;
      place = held.at(own, term);
    } else {
      const uint own = index % kAcross * 4, term = index / kAcross;
      from = data + (first + own + term * step);
      hop = kThreads / kAcross * step;
      place = held.at(own, term);
    }
  }

  template <int Tile, bool kLines>
  void hold(Held<Tile, kLines> held, uint term, uint index) {
    constexpr uint kTerms = 1024 / Tile, kFours = kTerms / 4, kAcross = Tile / 4;
    const bool along = lies_along();
    if (term + kTerms > terms || (along && step != 1)) {
      hold_elements(held, *this, first, term, index);
    } else if (along) {
      const uint at = term + index % kFours * 4;
      held.put(place, true, scaled(four_of(from), at, true));
      held.put(place + held.at(kThreads / kFours, 0), true, scaled(four_of(from + hop), at, true));
      from += kTerms;
    } else {
      const uint line = first + index % kAcross * 4, at = term + index / kAcross;
      const uint room = first + Tile <= lines ? 4 : lines - min(lines, line);
      held.put(place, false, scaled(four_of(from, 1, room), at, false));
      held.put(place + held.at(0, kThreads / kAcross), false,
               scaled(four_of(from + hop, 1, room), at + kThreads / kAcross, false));
      from += kTerms * step;
    }
  }
  template <int Tile>
  void prepare(uint) {}
};

// One tile's matrices, of which a SIMD group has a quarter.
template <int Tile>
struct Quarter {
  static constant constexpr uint kSide = Tile / 16;  // matrices down and across
  simdgroup_float8x8 sums[kSide][kSide];
  simdgroup_float8x8 totals[kSide][kSide];  // of the blocks before

  // The tile `group` of a * b.
  template <typename Left, typename Right>
  void sum(Left a, Right b, uint terms, threadgroup float* memory, uint3 group, uint index) {
    const Held<Tile, true> left{memory};
    const Held<Tile, false> right{left.all + Tile * left.kLine};
    threadgroup const float* down = left.all + index / 64 * (Tile / 2 * left.kLine);
    threadgroup const float* across = right.all + index / 32 % 2 * (Tile / 2);
    fill(sums);
    fill(totals);
    a.begin(left, group.y * Tile, index);
    b.begin(right, group.x * Tile, index);
    for (uint block = 0; block < terms; block += kBlock) {
      const uint end = min(terms, block + kBlock);
      for (uint term = block; term < end; term += left.kTerms) {
        a.hold(left, term, index);
        b.hold(right, term, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        multiply(down, across);
        b.template prepare<Tile>(index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
      }
      if (end == terms) break;
      add(totals, sums);
      fill(sums);
    }
    if (terms > kBlock) add(sums, totals);
  }
  static void fill(thread simdgroup_float8x8 (&all)[kSide][kSide]) {
    for (uint i = 0; i < kSide; ++i) {
      for (uint j = 0; j < kSide; ++j) {
        all[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      }
    }
  }
  static void add(thread simdgroup_float8x8 (&to)[kSide][kSide],
                  thread simdgroup_float8x8 (&more)[kSide][kSide]) {
#pragma unroll
    for (uint i = 0; i < kSide; ++i) {
      for (uint j = 0; j < kSide; ++j) {
        to[i][j].thread_elements()[0] += more[i][j].thread_elements()[0];
        to[i][j].thread_elements()[1] += more[i][j].thread_elements()[1];
      }
    }
  }
  // Adds the product of a step's terms.
  void multiply(threadgroup const float* a, threadgroup const float* b) {
    constexpr uint kRow = Held<Tile, true>::kLine, kColumn = Held<Tile, false>::kTerm;
#pragma unroll
    for (uint term = 0; term < 1024 / Tile; term += 8) {
      simdgroup_float8x8 l[kSide];
      simdgroup_float8x8 r[kSide];
      for (uint i = 0; i < kSide; ++i) {
        simdgroup_load(l[i], a + (8 * i * kRow + term), kRow);
        simdgroup_load(r[i], b + (term * kColumn + 8 * i), kColumn);
      }
      for (uint i = 0; i < kSide; ++i) {
        for (uint j = 0; j < kSide; ++j) {
          simdgroup_multiply_accumulate(sums[i][j], l[i], r[j], sums[i][j]);
        }
      }
    }
  }
  // Gives `to` its rows, each SIMD group by itself, four lanes a row.
  template <typename To>
  void store(thread const To& to, threadgroup float* memory, uint3 group, uint index) {
    constexpr uint kWidth = Tile / 2, kEach = kWidth / 4;
    const uint simd = index / 32, row = index % 32 / 4, column = index % 4 * kEach;
    threadgroup float* mine = memory + simd * (kWidth * kWidth);
#pragma unroll
    for (uint i = 0; i < kSide; ++i) {
      for (uint j = 0; j < kSide; ++j) {
        simdgroup_store(sums[i][j], mine + (8 * i * kWidth + 8 * j), kWidth);
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const uint left = group.x * Tile + simd % 2 * kWidth + column;
    const uint top = group.y * Tile + simd / 2 * kWidth + row;
    if (left >= to.p.n) return;
    const uint end = min(to.p.m, top + kWidth - row);
    threadgroup const float* from = mine + (row * kWidth + column);
    for (uint at = top; at < end; at += 8, from += 8 * kWidth) {
      Run<kEach / 4> run;
      for (uint i = 0; i < kEach / 4; ++i) {
        run.fours[i] = reinterpret_cast<threadgroup const float4*>(from)[i];
      }
      to.take(run, group, at, left);
    }
  }
};
// finish(alpha * sums + beta * addend), where an addend and what is beside it lie as they will; or
// the sums themselves, of one part of the terms.
template <typename T>
struct Result {
  device T* out;
  device const T* addend;
  device float* sums;
  bool whole;
  Strides of;
  Extents p;
  Finisher<T> finish;

  template <uint N>
  void take(Run<N> run, uint3 group, uint row, uint column) const {
    const uint room = p.n - column;
    if (!whole) return run.store(sums + ((group.z * p.m + row) * p.n + column), room);
    if (p.alpha != 1) run.multiply(Run<N>::of(p.alpha));
    // A NaN in an addend that does not count is not seen.
    if (p.beta != 0) {
      const uint at = finish.batch * of.batch + row * of.row + column * of.column;
      run.add(p.beta, run_of<N>(addend + at, of.column, room));
    }
    finish(run, row, column, room);
    run.store(out + ((finish.batch * p.m + row) * p.n + column), room);
  }
};

template <int Tile, typename T, typename Left, typename Right>
void multiply_tile(Left left, Right right, Result<T> to, uint terms, threadgroup float* memory,
                   uint3 group, uint index) {
  Quarter<Tile> quarter;
  quarter.sum(left, right, terms, memory, group, index);
  quarter.store(to, memory, group, index);
}
