// Weights are packed number by number to where the panel kernels read them, whatever their layout.
#ifdef __x86_64__
#include <numeric>
#include <vector>

#include "check.h"
#include "kernels/panels.h"

using menagerie::kernels::pack_panel;

namespace {

// Sizes of weights [columns, depth, taps], and a layout of theirs.
struct Weights {
  int64_t columns, depth, taps;
  int64_t column, row, tap;

  float at(int64_t j, int64_t k, int64_t t) const {
    return static_cast<float>(1 + j * column + k * row + t * tap);
  }
  int64_t count() const { return columns * depth * taps; }
};

// The same sizes with columns, rows of the depth and taps innermost.
std::vector<Weights> layouts(int64_t columns, int64_t depth, int64_t taps) {
  return {{columns, depth, taps, 1, columns, columns * depth},
          {columns, depth, taps, depth * taps, 1, depth},
          {columns, depth, taps, depth * taps, taps, 1}};
}

bool packs(const Weights& w, int64_t width) {
  constexpr float kBetween = -1;
  std::vector<float> from(static_cast<size_t>(w.count()));
  std::iota(from.begin(), from.end(), 1.0F);
  const int64_t panel = w.depth * width, to_tap = panel + 3;
  std::vector<float> to(static_cast<size_t>(to_tap * w.taps), kBetween);
  pack_panel({from.data(), w.row, w.column}, w.depth, w.columns, width, to.data(),
             {w.taps, w.tap, to_tap});
  for (int64_t i = 0; i < to_tap * w.taps; ++i) {
    const int64_t tap = i / to_tap, k = i % to_tap / width, j = i % to_tap % width;
    const float wanted = k >= w.depth ? kBetween : j >= w.columns ? 0 : w.at(j, k, tap);
    if (to[static_cast<size_t>(i)] != wanted) return false;
  }
  return true;
}

}  // namespace

TEST("every weight comes to its place in a panel, zero next to it, and nothing between taps") {
  for (const int64_t columns : {1, 5, 8, 14, 16, 23}) {
    for (const int64_t depth : {1, 7, 64, 131}) {
      for (const int64_t taps : {1, 3, 9}) {
        for (const Weights& weights : layouts(columns, depth, taps)) {
          CHECK(packs(weights, columns));
          CHECK(packs(weights, 24));
        }
      }
    }
  }
}
#endif
