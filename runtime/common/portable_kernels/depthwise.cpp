// Convolution of every channel alone: too thin for tiles, so the channels are the innermost loop.
#include <algorithm>

#include "common/context.h"
#include "common/platform/parallel.h"
#include "common/portable_kernels/window.h"

namespace menagerie::portable {
namespace {

// The weights [tap, channel].
struct TapWeights : Prepared {
  TapWeights(const Image& weight, const Window& window) {
    const int64_t taps = window.taps();
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* from = weight.data + window.weight_offset(tap);
      for (int64_t c = 0; c < weight.size[0]; ++c) values.push_back(from[c * weight.stride[0]]);
    }
  }
  size_t bytes() const override { return values.size() * sizeof(float); }

  std::vector<float> values;
};

std::shared_ptr<TapWeights> weights_of(const Tensor& weight, const Window& window) {
  const auto make = [&] { return std::make_shared<TapWeights>(Image(weight), window); };
  if (!weight.storage->is_constant()) return make();
  Key key("depthwise weights");
  key.add(static_cast<const void*>(weight.raw())).add(weight.sizes()).add(weight.strides());
  return Context::current().kernels().get<TapWeights>(key, make);
}

void add_tap(float* sums, const float* weights, const float* from, int64_t stride, int64_t count) {
  if (stride == 1) {
    for (int64_t c = 0; c < count; ++c) sums[c] += weights[c] * from[c];
  } else {
    for (int64_t c = 0; c < count; ++c) sums[c] += weights[c] * from[c * stride];
  }
}

}  // namespace

void depthwise(const Image& input, const Tensor& weight, const Window& window,
               const Finish& finish) {
  const std::shared_ptr<TapWeights> weights = weights_of(weight, window);
  const int64_t channels = input.size[1];
  const int64_t taps = window.taps();
  const auto rows = static_cast<size_t>(finish.result.rows.count());
  threads::share_out(rows, 64, [&](threads::Tasks& left) {
    std::vector<float> sums(channels);
    for (size_t first = 0, last = 0; left.take(first, last);) {
      for (auto row = static_cast<int64_t>(first); row < static_cast<int64_t>(last); ++row) {
        std::fill(sums.begin(), sums.end(), 0.0F);
        const auto index = finish.result.rows.index(row);
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t offset = window.input_offset(index, tap);
          if (offset < 0) continue;
          add_tap(sums.data(), &weights->values[tap * channels], input.data + offset,
                  input.stride[1], channels);
        }
        finish.store(row, 0, channels, sums.data());
      }
    }
  });
}

}  // namespace menagerie::portable
