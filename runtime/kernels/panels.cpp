#include "kernels/panels.h"

#include <immintrin.h>

#include <algorithm>

#include "common/memory.h"
#include "common/platform/threads.h"

namespace menagerie::kernels {
namespace {

constexpr int64_t kSquare = 8;
constexpr int64_t kAtOnce = 128;  // rows of a panel, which stay in the first two caches

// Set to[i][j] = from[j * column + i] for eight by eight floats.
void transpose_square(const float* from, int64_t column, float* const* to, int64_t j) {
  __m256 half[kSquare], quarter[kSquare];
  const auto both = [&](int64_t first) {  // four floats of a column and of the fourth one after it
    const __m128 near = _mm_loadu_ps(from + first % 4 * column + first / 4 * 4);
    const __m128 far = _mm_loadu_ps(from + (first % 4 + 4) * column + first / 4 * 4);
    return _mm256_set_m128(far, near);
  };
  for (int64_t i = 0; i < kSquare; i += 2) {
    const __m256 a = both(i), b = both(i + 1);
    half[i] = _mm256_unpacklo_ps(a, b);
    half[i + 1] = _mm256_unpackhi_ps(a, b);
  }
  for (int64_t i = 0; i < kSquare; i += 4) {
    quarter[i] = _mm256_shuffle_ps(half[i], half[i + 2], 0x44);
    quarter[i + 1] = _mm256_shuffle_ps(half[i], half[i + 2], 0xEE);
    quarter[i + 2] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0x44);
    quarter[i + 3] = _mm256_shuffle_ps(half[i + 1], half[i + 3], 0xEE);
  }
  for (int64_t i = 0; i < kSquare; ++i) _mm256_storeu_ps(to[i] + j, quarter[i]);
}

// Pack `rows` rows of a panel from columns that are dense in memory. Squares go from the last
// column down, and the first column's begins at zero: it may write some elements twice.
void pack_across(const float* from, int64_t column, int64_t rows, int64_t columns,
                 float* const* to) {
  const int64_t deep = columns < kSquare ? 0 : rows / kSquare * kSquare;
  for (int64_t left = columns; left > 0 && deep > 0; left -= kSquare) {
    const int64_t j = std::max<int64_t>(left - kSquare, 0);
    for (int64_t k = 0; k < deep; k += kSquare) {
      transpose_square(from + j * column + k, column, to + k, j);
    }
  }
  for (int64_t k = deep; k < rows; ++k) {
    for (int64_t j = 0; j < columns; ++j) to[k][j] = from[j * column + k];
  }
}

// Pack panels of columns whose numbers, over all taps, are dense in memory: each is read once and
// written to its tap's panel.
void pack_columns(const float* from, int64_t column, int64_t depth, int64_t columns, int64_t width,
                  float* to, const Taps& taps) {
  const int64_t all = depth * taps.count;
  int64_t tap = 0;
  for (int64_t first = 0; first < all; first += kAtOnce) {
    float* rows[kAtOnce];
    const int64_t count = std::min(kAtOnce, all - first);
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = to + tap * taps.to;
      std::fill(rows[i] + columns, rows[i] + width, 0.0F);
      if (++tap < taps.count) continue;
      tap = 0;
      to += width;
    }
    pack_across(from + first, column, count, columns, rows);
  }
}

// Pack row by row, for any strides.
void pack_rows(const MatrixView& from, int64_t depth, int64_t columns, int64_t width, float* to) {
  for (int64_t k = 0; k < depth; ++k, to += width) {
    const float* row = from.data + k * from.row;
    if (from.column == 1) {
      std::copy_n(row, columns, to);
    } else {
      for (int64_t j = 0; j < columns; ++j) to[j] = row[j * from.column];
    }
    std::fill(to + columns, to + width, 0.0F);
  }
}

// Bytes that are written while they are still in the cache after the system has cleared them.
constexpr int64_t kPiece = 1 << 18;

void pack_place(const float* weights, const PanelLayout& layout, const PanelPlace& place) {
  pack_panel({weights + place.first * layout.column, layout.step, layout.column}, layout.depth,
             place.columns, place.width, place.to, {layout.taps, layout.tap, place.tap});
  for (int64_t tap = 0; tap < layout.taps; ++tap) {
    float* to = place.to + tap * place.tap;
    std::fill(to + layout.depth * place.width, to + place.tap, 0.0F);
  }
}

}  // namespace

void pack_panel(const MatrixView& from, int64_t depth, int64_t columns, int64_t width, float* to,
                const Taps& taps) {
  if (from.column != 1 && from.row == taps.count && (taps.count == 1 || taps.from == 1)) {
    return pack_columns(from.data, from.column, depth, columns, width, to, taps);
  }
  for (int64_t tap = 0; tap < taps.count; ++tap, to += taps.to) {
    pack_rows({from.data + tap * taps.from, from.row, from.column}, depth, columns, width, to);
  }
}

void pack_panels(const float* weights, const PanelLayout& layout,
                 std::span<const PanelPlace> places) {
  const auto bytes = [&](const PanelPlace& place) {
    return static_cast<size_t>(layout.taps * place.tap) * sizeof(float);
  };
  const size_t chunk = kPiece / bytes(places.front()) + 1;
  threads::share_out(places.size(), chunk, [&](threads::Tasks& left) {
    for (size_t next = 0, end = 0; left.take(next, end);) {
      const std::span<const PanelPlace> piece = places.subspan(next, end - next);
      size_t all = 0;
      for (const PanelPlace& place : piece) all += bytes(place);
      populate(piece.front().to, all);
      for (const PanelPlace& place : piece) pack_place(weights, layout, place);
    }
  });
}

}  // namespace menagerie::kernels
