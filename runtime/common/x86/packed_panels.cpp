#include "common/x86/packed_panels.h"

#include "common/constant_cache.h"
#include "common/context.h"
#include "common/pages.h"
#include "common/platform/parallel.h"
#include "common/x86/panel_packing.h"

namespace menagerie::x86 {

PackedPanels::PackedPanels(const float* weights, const PanelLayout& layout) {
  const int64_t depth = layout.taps * layout.depth;
  int64_t width = 0;
  each_panel(layout.columns, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, nullptr});
    width += kernel.width;
  });
  bytes_ = static_cast<size_t>(width * depth) * sizeof(float);
  weights_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(width * depth));
  populate(weights_.get(), bytes_);
  const float* next = weights_.get();
  for (Panel& panel : panels_) {
    panel.weights = next;
    next += depth * panel.kernel->width;
  }
  threads::share_out(panels_.size(), 1, [&](threads::Tasks& left) {
    for (size_t index = 0, end = 0; left.take(index, end);) {
      const Panel& panel = panels_[index];
      const float* from = weights + panel.first * layout.column;
      float* to = weights_.get() + (panel.weights - weights_.get());
      for (int64_t tap = 0; tap < layout.taps; ++tap, to += layout.depth * panel.kernel->width) {
        pack_panel({from + tap * layout.tap, layout.step, layout.column}, layout.depth,
                   panel.columns, panel.kernel->width, to);
      }
    }
  });
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight, const PanelLayout& layout) {
  Key key("panels");
  key.add(weight.raw()).add(layout.columns).add(layout.taps).add(layout.depth);
  key.add(layout.column).add(layout.tap).add(layout.step);
  const auto make = [&] {
    auto made = std::make_shared<PackedPanels>(weight.data<float>(), layout);
    release_pages(*weight.storage);
    return made;
  };
  return Context::current().kernels().get<PackedPanels>(key, [&] {
    return ConstantCache::of_process().get<PackedPanels>(key, weight.storage, make);
  });
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight) {
  return packed_panels(weight,
                       {weight.size[0], 1, weight.size[1], weight.stride[0], 0, weight.stride[1]});
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
