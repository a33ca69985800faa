#include "common/x86/packed_panels.h"

#include <algorithm>

#include "common/constant_cache.h"
#include "common/platform/parallel.h"
#include "common/x86/panel_packing.h"

namespace menagerie::x86 {
namespace {

// Bytes that are written while they are still in the cache from the system's clearing them.
constexpr int64_t kPiece = 1 << 18;

size_t bytes_of(const PanelLayout& layout) {
  int64_t width = 0;
  each_panel(layout.columns,
             [&](const PanelKernel& kernel, int64_t, int64_t) { width += kernel.width; });
  return static_cast<size_t>(width * layout.taps * layout.depth) * sizeof(float);
}

void pack_place(const float* weights, const PanelLayout& layout, const PanelPlace& place) {
  pack_panel({weights + place.first * layout.column, layout.step, layout.column}, layout.depth,
             place.columns, place.width, place.to, {layout.taps, layout.tap, place.tap});
  for (int64_t tap = 0; tap < layout.taps; ++tap) {
    float* to = place.to + tap * place.tap;
    std::fill(to + layout.depth * place.width, to + place.tap, 0.0F);
  }
}

}  // namespace

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

PackedPanels::PackedPanels(const float* weights, const PanelLayout& layout)
    : bytes_(bytes_of(layout)), memory_(lasting_memory(bytes_)) {
  std::vector<PanelPlace> places;
  float* to = memory_.get();
  each_panel(layout.columns, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    panels_.push_back({&kernel, first, columns, to});
    places.push_back({first, columns, kernel.width, layout.depth * kernel.width, to});
    to += layout.taps * places.back().tap;
  });
  pack_panels(weights, layout, places);
}

std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight, const PanelLayout& layout) {
  Key key("panels");
  key.add(weight.raw()).add(layout.columns).add(layout.taps).add(layout.depth);
  key.add(layout.column).add(layout.tap).add(layout.step);
  return made_once<PackedPanels>(
      key, weight, [&] { return std::make_shared<PackedPanels>(weight.data<float>(), layout); });
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
