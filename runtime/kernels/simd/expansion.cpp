// A depthwise convolution of a deeper image that another convolution makes, as in an inverted
// residual block (arXiv:1801.04381).
#include <algorithm>
#include <memory>

#include "common/context.h"
#include "common/platform/threads.h"
#include "kernels/simd/depthwise.h"
#include "kernels/simd/expanders.h"

namespace menagerie::simd {
namespace {

using kernels::Expanded;

constexpr int64_t kFar = 1 << 22;  // bytes of expanded images; infra/adr/0019 has the figures
constexpr int64_t kTasksEach = 2;  // tasks that each thread may take, so that they end together

// The arguments that all tasks share.
struct Block {
  const Expanded& call;
  const Tensor& output;
  const float* windows;
  const Finish& finish;
  std::span<const ResultRun> across;  // of a row of results
  const Expander& expander;

  // Sizes of the expanded image.
  int64_t height() const { return call.sizes[2]; }
  int64_t width() const { return call.sizes[3]; }
  // Rows of the expanded image that a window reaches over.
  int64_t reach() const { return (call.weight.size[2] - 1) * call.parameters.dilation[0] + 1; }
};

// The rows of an expanded image that the next window reaches, panel by panel of its channels.
class HeldRows {
 public:
  HeldRows(const Block& block, int64_t image) : block_(block), image_(image) {
    int64_t room = 0;
    for (const Channels& panel : block.expander.panels()) room += panel.width;
    room = room * row(1) + block.expander.gathered();
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(room * block.reach()));
  }

  // Compute row `y` of the results. Rows come one after another.
  void slide(int64_t y) {
    const auto& p = block_.call.parameters;
    const int64_t top = std::clamp<int64_t>(y * p.stride[0] - p.padding[0], 0, block_.height());
    const int64_t bottom =
        std::min(y * p.stride[0] - p.padding[0] + block_.reach(), block_.height());
    const int64_t fresh = std::max(top, held_);
    const Expander& expander = block_.expander;
    const auto panels = expander.panels();
    float* memory = memory_.get() + expander.gathered() * block_.reach();
    for (int64_t next = fresh; next < bottom; ++next) {
      expander.gather(image_, next, gathered(next));
    }
    for (size_t panel = 0; panel < panels.size(); ++panel) {
      const Channels& channels = panels[panel];
      for (int64_t next = fresh; next < bottom; ++next) {
        expander.expand({image_, next, gathered(next)}, panel,
                        memory + next % block_.reach() * row(channels.width));
      }
      slide_row(over(channels, memory), y);
      memory += row(channels.width) * block_.reach();
    }
    held_ = std::max(held_, bottom);
  }

 private:
  int64_t row(int64_t channels) const { return block_.width() * channels; }
  float* gathered(int64_t y) const {
    return memory_.get() + y % block_.reach() * block_.expander.gathered();
  }

  RowConvolution over(const Channels& channels, const float* memory) const {
    const Expanded& call = block_.call;
    const Tensor& output = block_.output;
    return {memory,
            block_.reach(),
            row(channels.width),
            channels.width,
            block_.height(),
            block_.windows + channels.first,
            output.size[1],
            call.weight.size[2],
            call.weight.size[3],
            call.bias == nullptr ? nullptr : call.bias->data<float>() + channels.first,
            output.data<float>() + image_ * output.stride[0] + channels.first,
            output.stride[2],
            output.stride[3],
            block_.across,
            channels.count,
            call.parameters,
            block_.finish};
  }

  const Block& block_;
  int64_t image_;
  std::unique_ptr<float[]> memory_;
  int64_t held_ = 0;  // rows before it are computed, as far as windows reach them
};

// A task is a band of rows of results; the rows that two of them reach are computed twice.
void run(const Block& block) {
  const int64_t images = block.output.size[0], height = block.output.size[2];
  const int64_t threads = Context::current().threads();
  const int64_t wanted = threads == 1 ? 1 : kTasksEach * threads;
  const int64_t bands = std::clamp<int64_t>(wanted / images, 1, height);
  threads::for_each(images * bands, 1, [&](int64_t task) {
    const int64_t band = task % bands;
    HeldRows rows(block, task / bands);
    for (int64_t y = band * height / bands; y < (band + 1) * height / bands; ++y) rows.slide(y);
  });
}

bool pays(const Expanded& call) {
  int64_t elements = 1;
  for (const int64_t size : call.sizes) elements *= size;
  return elements * int64_t{sizeof(float)} >= kFar;
}

}  // namespace

bool expanded_depthwise(const Expanded& call, const Tensor& output) {
  Finish inner, outer;
  const int64_t channels = call.expansion.size[0];
  if (!pays(call) || !is_depthwise(channels, call.weight, call.parameters, output) ||
      !finish_of(call.expansion_epilogue, inner) || !finish_of(call.epilogue, outer)) {
    return false;
  }
  const auto expander = expander_of(call, inner);
  if (expander == nullptr) return false;
  const auto windows = packed_windows(call.weight);
  const auto across =
      result_runs(call.parameters, call.sizes[3], call.weight.size[3], output.size[3]);
  run({call, output, windows->values.data(), outer, across, *expander});
  return true;
}

}  // namespace menagerie::simd
