// The arithmetic of pooling windows, against counting out each window point by point.
#include "check.h"
#include "common/windows.h"

using namespace menagerie;

namespace {

Tensor image(int64_t height, int64_t width) {
  return empty_contiguous(Dtype::kFloat32, std::vector<int64_t>{1, 1, height, width});
}

// The points of a given window that are inside, and its length where it ends at the padding.
void check_stretch(const PooledAxis& axis, int64_t position) {
  const int64_t start = position * axis.stride - axis.padding;
  std::vector<int64_t> points;
  for (int64_t i = 0; i < axis.window; ++i) {
    const int64_t point = start + i * axis.dilation;
    if (point >= 0 && point < axis.input) points.push_back(point);
  }
  const WindowExtent stretch = axis.extent(position);
  std::vector<int64_t> found;
  for (int64_t i = stretch.first; i < stretch.end; i += stretch.step) found.push_back(i);
  CHECK(found == points);
  if (axis.dilation == 1) {
    CHECK(stretch.padded_length ==
          std::min(start + axis.window, axis.input + axis.padding) - start);
  }
}

}  // namespace

TEST("given windows look at the points that their definition names") {
  for (const int64_t input : {1, 2, 5, 9}) {
    for (const int64_t window : {1, 2, 3, 4}) {
      for (const int64_t stride : {1, 2, 3}) {
        for (const int64_t padding : {0, 1, 2}) {
          for (const int64_t dilation : {1, 2}) {
            for (const bool ceil : {false, true}) {
              const std::vector<int64_t> w{1, window}, s{1, stride}, p{0, padding}, d{1, dilation};
              const Tensor tensor = image(1, input);
              Windows windows;
              if (!check::passes(
                      [&] { windows = sliding_windows(tensor, 2, {w, s, p, d, ceil}); })) {
                continue;
              }
              const PooledAxis& axis = windows.axes[2];
              const int64_t room = input + 2 * padding - dilation * (window - 1) - 1;
              CHECK(axis.output == room / stride + 1 || (ceil && room % stride != 0));
              for (int64_t i = 0; i < axis.output; ++i) check_stretch(axis, i);
            }
          }
        }
      }
    }
  }
}

TEST("adaptive windows cover the image from end to end, each at least one point") {
  for (int64_t input = 1; input < 12; ++input) {
    for (int64_t output = 1; output < 14; ++output) {
      const std::vector<int64_t> sizes{1, output};
      const PooledAxis axis = adaptive_windows(image(1, input), sizes).axes[2];
      CHECK(axis.extent(0).first == 0 && axis.extent(output - 1).end == input);
      for (int64_t i = 0; i < output; ++i) {
        const WindowExtent stretch = axis.extent(i);
        CHECK(stretch.first < stretch.end && stretch.end <= input);
        CHECK(i == 0 || stretch.first <= axis.extent(i - 1).end);
      }
    }
  }
}

TEST("numbers that make no window are refused") {
  const std::vector<int64_t> two{2, 2}, none{0, 0}, huge{int64_t{1} << 40, 1}, three{1, 2, 3};
  REFUSES("do not fit together", sliding_windows(image(4, 4), 2, {none, {}, {}, {}}));
  REFUSES("do not fit together", sliding_windows(image(4, 4), 2, {two, huge, {}, {}}));
  REFUSES("do not fit together", sliding_windows(image(4, 4), 2, {two, two, two, {}}));
  REFUSES("takes 2 numbers or one", sliding_windows(image(4, 4), 2, {three, {}, {}, {}}));
  REFUSES("larger than the input", sliding_windows(image(1, 4), 2, {two, {}, {}, {}}));
  REFUSES("out of range", adaptive_windows(image(4, 4), huge));
}
