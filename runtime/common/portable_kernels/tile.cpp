#include "common/portable_kernels/tile.h"

namespace menagerie::portable {
namespace {

Float8 load(const float* from) {
  Float8 value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

void add_to(float* to, Float8 value) {
  value += load(to);
  __builtin_memcpy(to, &value, sizeof value);
}

}  // namespace

void multiply_tile(int64_t depth, const float* left, const float* right, float* sums, int64_t row) {
  Float8 low[kTileRows] = {};
  Float8 high[kTileRows] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const Float8 first = load(right + k * kTileColumns);
    const Float8 second = load(right + k * kTileColumns + 8);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kTileRows; ++i) {
      const float factor = left[k * kTileRows + i];
      low[i] += factor * first;
      high[i] += factor * second;
    }
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kTileRows; ++i) {
    add_to(sums + i * row, low[i]);
    add_to(sums + i * row + 8, high[i]);
  }
}

}  // namespace menagerie::portable
