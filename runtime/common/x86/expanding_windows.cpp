#include "common/x86/expanding_windows.h"

#include <algorithm>
#include <vector>

#include "common/x86/sliding.h"

namespace menagerie::x86 {
namespace {

using kernels::Expanded;

// A weight [O, C, height, width] as one matrix, channel by channel.
PanelLayout layout_of(const Tensor& weight) {
  return {weight.size[0],   weight.size[1],   weight.size[2] * weight.size[3],
          weight.stride[0], weight.stride[1], weight.stride[weight.size[3] == 1 ? 2 : 3]};
}

// Copies what each pixel's window reads, then multiplies rows of that.
class WindowExpander : public PanelExpander {
 public:
  WindowExpander(const Expanded& call, const Finish& finish)
      : PanelExpander(call, finish, packed_panels(call.expansion, layout_of(call.expansion))) {
    const auto& p = call.expansion_parameters;
    for (int64_t x = 0; x < call.expansion.size[3]; ++x) {
      const Reach pixels(x * p.dilation[1] - p.padding[1], p.stride[1], width(),
                         call.input.size[3]);
      across_.push_back(pixels);
    }
  }

  int64_t gathered() const override { return width() * depth(); }
  void gather(int64_t image, int64_t y, float* to) const override {
    const Tensor& input = call().input;
    const auto& p = call().expansion_parameters;
    for (int64_t c = 0; c < input.size[1]; ++c) {
      for (int64_t i = 0; i < call().expansion.size[2]; ++i, to += call().expansion.size[3]) {
        const int64_t row = y * p.stride[0] - p.padding[0] + i * p.dilation[0];
        const bool inside = row >= 0 && row < input.size[2];
        gather_row(inside ? input.data<float>() + image * input.stride[0] + c * input.stride[1] +
                                row * input.stride[2]
                          : nullptr,
                   to);
      }
    }
  }

 protected:
  void multiply(const ExpandedRow& row, size_t panel, const Finish& finish,
                float* to) const override {
    multiply_pixels(row.gathered, depth(), depth(), panel, finish, to);
  }

 private:
  int64_t width() const { return call().sizes[3]; }
  int64_t depth() const { return call().expansion.elements() / call().expansion.size[0]; }

  // What one row of the windows reads of one of the image's, null for one outside.
  void gather_row(const float* from, float* to) const {
    const auto& p = call().expansion_parameters;
    const int64_t column = call().input.stride[3], step = p.stride[1] * column;
    const int64_t pixels = width(), between = depth();
    for (size_t x = 0; x < across_.size(); ++x, ++to) {
      const Reach reach = from == nullptr ? Reach(0, 1, 0, 0) : across_[x];
      const int64_t left = (static_cast<int64_t>(x) * p.dilation[1] - p.padding[1]) * column;
      for (int64_t i = 0; i < pixels; ++i) {
        to[i * between] = i >= reach.first && i < reach.last ? from[left + i * step] : 0;
      }
    }
  }

  std::vector<Reach> across_;  // of each column of a window, the pixels for which it is inside
};

}  // namespace

std::unique_ptr<Expander> window_expander(const Expanded& call, const Finish& finish) {
  const Tensor& weight = call.expansion;
  const bool is_matrix = weight.size[2] == 1 || weight.size[3] == 1 ||
                         weight.stride[2] == weight.size[3] * weight.stride[3];
  const bool plain = call.expansion_parameters.groups == 1 && weight.storage->is_constant();
  if (!is_matrix || !plain || call.input.dtype != Dtype::kFloat32) return nullptr;
  return std::make_unique<WindowExpander>(call, finish);
}

}  // namespace menagerie::x86
