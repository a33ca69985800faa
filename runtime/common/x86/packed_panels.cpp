#include "common/x86/packed_panels.h"

#include "common/context.h"
#include "common/x86/panel_packing.h"

namespace menagerie::x86 {

PackedPanels::PackedPanels(const PanelSource& source) {
  int64_t width = 0;
  each_panel(source.columns, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, nullptr});
    width += kernel.width;
  });
  weights_.resize(static_cast<size_t>(width * source.taps * source.depth));
  float* to = weights_.data();
  for (Panel& panel : panels_) {
    panel.weights = to;
    const float* from = source.data + panel.first * source.column;
    for (int64_t tap = 0; tap < source.taps; ++tap, to += source.depth * panel.kernel->width) {
      pack_panel({from + tap * source.tap, source.step, source.column}, source.depth, panel.columns,
                 panel.kernel->width, to);
    }
  }
}

std::shared_ptr<PackedPanels> packed_panels(const PanelSource& source) {
  Key key("panels");
  key.add(source.data).add(source.columns).add(source.taps).add(source.depth);
  key.add(source.column).add(source.tap).add(source.step);
  return Context::current().kernels().get<PackedPanels>(
      key, [&] { return std::make_shared<PackedPanels>(source); });
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight) {
  return packed_panels({weight.data<float>(), weight.size[0], 1, weight.size[1], weight.stride[0],
                        0, weight.stride[1]});
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
