#include "common/x86/packed_panels.h"

#include "common/context.h"

namespace menagerie::x86 {

PackedPanels::PackedPanels(const Tensor& weight) {
  const int64_t depth = weight.size[1];
  int64_t width = 0;
  each_panel(weight.size[0], [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, nullptr});
    width += kernel.width;
  });
  weights_.resize(static_cast<size_t>(width * depth));
  float* to = weights_.data();
  for (Panel& panel : panels_) {
    panel.weights = to;
    const float* from = weight.data<float>() + panel.first * weight.stride[0];
    for (int64_t k = 0; k < depth; ++k, to += panel.kernel->width) {
      for (int64_t j = 0; j < panel.columns; ++j) {
        to[j] = from[j * weight.stride[0] + k * weight.stride[1]];
      }
    }
  }
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight) {
  Key key("pointwise");
  key.add(weight.raw()).add(weight.size[0]).add(weight.size[1]);
  key.add(weight.stride[0]).add(weight.stride[1]);
  return Context::current().kernels().get<PackedPanels>(
      key, [&] { return std::make_shared<PackedPanels>(weight); });
}

std::optional<int64_t> row_of_pixels(const Tensor& images) {
  if (images.dtype != Dtype::kFloat32) return std::nullopt;
  if (images.size[1] > 1 && images.stride[1] != 1) return std::nullopt;
  int64_t row = images.size[1], count = 1;
  for (int32_t axis = images.dimensions - 1; axis >= 0; --axis) {
    if (axis == 1 || images.size[axis] == 1) continue;
    if (count == 1) row = images.stride[axis];
    if (images.stride[axis] != row * count) return std::nullopt;
    count *= images.size[axis];
  }
  return row;
}

bool is_pointwise(const Tensor& weight, const kernels::ConvolutionParameters& p) {
  bool plain = !p.transposed && p.groups == 1 && weight.storage->is_constant();
  for (size_t i = 0; i < p.spatial; ++i) {
    plain = plain && weight.size[i + 2] == 1 && p.stride[i] == 1 && p.padding[i] == 0;
  }
  return plain;
}

}  // namespace menagerie::x86
