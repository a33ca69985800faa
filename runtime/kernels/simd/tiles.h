// The innermost loops for one width of vectors: sums stay in registers until they are stored. Local
// to the including file.
#pragma once

#include "kernels/simd/functions.h"

namespace menagerie::simd {
namespace {

// Sums of kRows results of kVectors vectors each. The last vector may be partial.
template <class Lanes, int kRows, int kVectors, bool kWhole>
struct Sums {
  using V = typename Lanes::Vector;
  using Activation = kernels::Activation;
  V sum[kRows][kVectors];
  int64_t last;  // columns of the last vector

  explicit Sums(int64_t columns) : last(columns - (kVectors - 1) * Lanes::kCount) {}

  V load(const float* from, int j) const {
    const float* at = from + j * Lanes::kCount;
    return kWhole || j + 1 < kVectors ? Lanes::load(at) : Lanes::load_first(at, last);
  }
  void store(float* to, int j, V x) const {
    float* at = to + j * Lanes::kCount;
    if (kWhole || j + 1 < kVectors) return Lanes::store(at, x);
    Lanes::store_first(at, x, last);
  }

  void begin(const float* bias) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const V first = bias == nullptr ? Lanes::all(0) : load(bias, j);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sum[i][j] = first;
    }
  }

  void end(const Finish& finish, float* output, int64_t output_row) {
    if (finish.clamps) {
      const V lowest = Lanes::all(finish.lowest), highest = Lanes::all(finish.highest);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) {
          sum[i][j] = Lanes::clamped(sum[i][j], lowest, highest);
        }
      }
    }
    // An activation is computed from a copy, so that a result is written to memory once.
    constexpr int64_t kWidth = kVectors * Lanes::kCount;
    alignas(64) float copy[kRows * kWidth];
    const bool activates = finish.activation != Activation::kNone;
    float* to = activates ? copy : output;
    const int64_t step = activates ? kWidth : output_row;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, to += step) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) store(to, j, sum[i][j]);
    }
    if (!activates) return;
    const int64_t columns = kWidth - Lanes::kCount + last;
    activate<Lanes>(finish.activation, {copy, kWidth, output, output_row, kRows, columns});
  }
};

template <class Lanes, int kVectors, int kRows, bool kPacked, bool kWhole>
void multiply_all(const ProductTile& t, const Finish& finish) {
  using V = typename Lanes::Vector;
  Sums<Lanes, kRows, kVectors, kWhole> sums(t.columns);
  sums.begin(t.bias);
  const float* weights = t.weights;
  for (int64_t k = 0; k < t.depth; ++k, weights += kVectors * Lanes::kCount) {
    V right[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) right[j] = Lanes::load(weights + j * Lanes::kCount);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V left = Lanes::all(kPacked ? t.input[k * kRows + i] : t.input[i * t.input_row + k]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        sums.sum[i][j] = Lanes::accumulate(left, right[j], sums.sum[i][j]);
      }
    }
  }
  sums.end(finish, t.output, t.output_row);
}

// Multiply 1 to kMostRows rows.
template <class Lanes, int kVectors, int kMostRows, bool kPacked = false>
void multiply(const ProductTile& t, const Finish& finish) {
  if constexpr (kMostRows > 1) {
    if (t.rows < kMostRows) return multiply<Lanes, kVectors, kMostRows - 1, kPacked>(t, finish);
  }
  if (t.columns == kVectors * Lanes::kCount) {
    return multiply_all<Lanes, kVectors, kMostRows, kPacked, true>(t, finish);
  }
  multiply_all<Lanes, kVectors, kMostRows, kPacked, false>(t, finish);
}

// Compute kVectors vectors of channels from `first` on, for kCount results; the one vector that is
// not whole ends with the channels.
template <class Lanes, int kCount, int kVectors, bool kWhole = true>
void slide_channels(const WindowTile& t, const Finish& finish, int64_t first) {
  Sums<Lanes, kCount, kVectors, kWhole> sums(kWhole ? kVectors * Lanes::kCount
                                                    : t.channels - first);
  sums.begin(t.bias == nullptr ? nullptr : t.bias + first);
  for (int64_t y = 0; y < t.rows; ++y) {
    const float* weights = t.weights + y * t.weights_row + first;
    const float* input = t.input[y] + t.left + first;
    for (int64_t x = 0; x < t.columns; ++x) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const auto weight = sums.load(weights, j);
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) {
          const auto value = sums.load(input + i * t.input_step, j);
          sums.sum[i][j] = Lanes::multiply_add(value, weight, sums.sum[i][j]);
        }
      }
      weights += t.weights_column;
      input += t.input_column;
    }
  }
  sums.end(finish, t.output + first, t.output_step);
}

// Compute 1 to kCount results. The fewer they are, the more channels at once, so that enough sums
// are in flight.
template <class Lanes, int kCount>
void slide(const WindowTile& t, const Finish& finish) {
  if constexpr (kCount > 1) {
    if (t.count < kCount) return slide<Lanes, kCount - 1>(t, finish);
  }
  constexpr int kVectors = kCount > 4 ? 1 : kCount > 2 ? 2 : 4;
  int64_t first = 0;
  for (; first + kVectors * Lanes::kCount <= t.channels; first += kVectors * Lanes::kCount) {
    slide_channels<Lanes, kCount, kVectors>(t, finish, first);
  }
  for (; first + Lanes::kCount <= t.channels; first += Lanes::kCount) {
    slide_channels<Lanes, kCount, 1>(t, finish, first);
  }
  if (first < t.channels) slide_channels<Lanes, kCount, 1, false>(t, finish, first);
}

}  // namespace
}  // namespace menagerie::simd
